//! The queue: what is stored, what runs, and the operations that clients ask for.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_core::units::Rate;
use longhaul_engine::engine::Engine;
use longhaul_engine::rate_limit::RateLimit;
use longhaul_engine::sink::memory_budget::AppBuffer;
use serde::Serialize;

use crate::database::{Database, NewTransfer, PageCursor, Row};
use crate::error::{AgentError, QueueError};
use crate::events::{AgentEvent, Events};
use crate::live::Live;
use crate::lock;
use crate::paths::Paths;
use crate::request::TransferRequest;
use crate::secrets::SecretBox;
use crate::settings::{Settings, SettingsPatch};
use crate::transfer::{Transfer, TransferState};

/// The most transfers that one request adds.
const MOST_AT_ONCE: usize = 100_000;

/// The queue, shared by the API and the runner.
pub struct Queue {
    pub(crate) paths: Paths,
    pub(crate) engine: Engine,
    /// The ceiling of all transfers together.
    pub(crate) limit: RateLimit,
    pub(crate) events: Events,
    pub(crate) secrets: SecretBox,
    pub(crate) moved: AtomicU64,
    database: Mutex<Database>,
    settings: Mutex<Settings>,
    live: Mutex<HashMap<i64, Arc<Live>>>,
    /// Transfers that a browser has offered and that are not accepted yet: no event is sent of them, and they do not count against `concurrent`.
    offered: Mutex<HashSet<i64>>,
    wake: Wake,
    stopping: AtomicBool,
}

/// Wakes the runner.
#[derive(Default)]
struct Wake {
    called: Mutex<bool>,
    changed: Condvar,
}

/// The totals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Stats {
    /// Transfers that run.
    pub active: u64,
    /// Transfers that wait for their turn or for a time.
    pub waiting: u64,
    /// The rate of all, in bits per second.
    pub goodput_bps: u64,
    /// The program's version.
    pub version: String,
    /// The agent's process.
    pub pid: u32,
}

/// A page of transfers.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct TransferPage {
    /// The transfers.
    pub transfers: Vec<Transfer>,
    /// What `after` is for the next page.
    pub next: Option<String>,
    /// How many there are in all pages.
    pub total: u64,
    /// How many there are of each state.
    pub counts: std::collections::BTreeMap<String, u64>,
}

impl Queue {
    /// Opens the queue; a damaged one is moved aside.
    ///
    /// # Errors
    /// [`AgentError`].
    pub(crate) fn open(paths: Paths) -> Result<Self, AgentError> {
        let opened = Database::open(&paths.database(), unix_now())?;
        if let Some((aside, why)) = opened.damaged {
            tracing::error!(
                "the queue {} is damaged ({why}): it is kept as {}, and a new queue begins",
                paths.database().display(),
                aside.display()
            );
        }
        let key = paths.key();
        let secrets =
            SecretBox::open(&key).map_err(|source| AgentError::file("use the key", &key, source))?;
        let settings = opened.database.settings()?.unwrap_or_default();
        Ok(Self {
            paths,
            engine: Engine::new(AppBuffer::Auto),
            limit: RateLimit::adjustable(settings.usual().rate),
            events: Events::new(),
            secrets,
            moved: AtomicU64::new(0),
            database: Mutex::new(opened.database),
            settings: Mutex::new(settings),
            live: Mutex::default(),
            offered: Mutex::default(),
            wake: Wake::default(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Calls `with` with the database; it is held meanwhile.
    pub(crate) fn database<T>(&self, with: impl FnOnce(&mut Database) -> T) -> T {
        with(&mut lock(&self.database))
    }

    /// Adds transfers; returns once they are on the disk.
    ///
    /// # Errors
    /// [`QueueError`]; none of them is added then.
    pub fn add(&self, requests: Vec<TransferRequest>) -> Result<Vec<Transfer>, QueueError> {
        if requests.len() > MOST_AT_ONCE {
            return Err(QueueError::Invalid(format!(
                "one request adds at most {MOST_AT_ONCE} transfers: split it"
            )));
        }
        let (directory, now) = (self.settings().directory, unix_now());
        let mut transfers = Vec::with_capacity(requests.len());
        for request in requests {
            for (index, request) in request.normalised(&directory)?.into_iter().enumerate() {
                transfers.push(self.new_transfer(request, index, now));
            }
        }
        let ids = self.database(|database| database.add(&transfers, now))?;
        self.wake();
        let added = self.database(|database| {
            let rows = ids.iter().filter_map(|id| database.get(*id).transpose());
            rows.collect::<Result<Vec<_>, _>>()
        })?;
        let added: Vec<_> = added.into_iter().map(|row| self.shown(row)).collect();
        added.iter().for_each(|transfer| self.tell(transfer));
        Ok(added)
    }

    /// Adds an offered transfer; sends no event.
    pub(crate) fn add_offered(&self, request: TransferRequest) -> Result<Vec<Transfer>, QueueError> {
        let (directory, now) = (self.settings().directory, unix_now());
        let requests = request.normalised(&directory)?.into_iter();
        let transfers: Vec<_> = requests.map(|request| self.new_transfer(request, 0, now)).collect();
        // Held until it is known which they are: the runner must not count them.
        let mut offered = lock(&self.offered);
        let ids = self.database(|database| database.add(&transfers, now))?;
        offered.extend(&ids);
        drop(offered);
        ids.into_iter().map(|id| self.transfer(id)).collect()
    }

    /// Returns whether a transfer is offered and not accepted yet.
    pub(crate) fn is_offered(&self, id: i64) -> bool {
        lock(&self.offered).contains(&id)
    }

    /// Makes an offered transfer one like all others.
    pub(crate) fn settle_offer(&self, id: i64) {
        lock(&self.offered).remove(&id);
    }

    fn new_transfer(&self, request: TransferRequest, index: usize, now: i64) -> NewTransfer {
        let state = match request.at {
            _ if request.paused => TransferState::Paused,
            Some(at) if at > now => TransferState::Scheduled,
            _ => TransferState::Queued,
        };
        NewTransfer {
            // One request with several paths has several transfers.
            key: request.key.as_ref().map(|key| format!("{key}/{index}")),
            kind: request.kind,
            state,
            priority: request.priority,
            request: self.seal(&request),
            urls: request.shown_urls(),
            name: request.shown_name(),
            path: request.shown_path(),
            page_url: request.shown_page(),
            limit_bps: request.limit_bps,
            at: request.at,
        }
    }

    fn seal(&self, request: &TransferRequest) -> Vec<u8> {
        self.secrets.seal(&serde_json::to_vec(request).unwrap_or_default())
    }

    /// Opens the request of a transfer.
    pub(crate) fn request(&self, id: i64) -> Result<TransferRequest, QueueError> {
        let sealed = self.database(|database| database.request(id))?.ok_or(QueueError::NotFound(id))?;
        let unreadable = |why: String| QueueError::Invalid(format!("transfer {id} cannot be run: {why}"));
        let text = self.secrets.unseal(&sealed).map_err(|error| unreadable(error.to_string()))?;
        serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))
    }

    /// Returns a transfer.
    ///
    /// # Errors
    /// [`QueueError::NotFound`].
    pub fn transfer(&self, id: i64) -> Result<Transfer, QueueError> {
        self.row(id).map(|row| self.shown(row))
    }

    pub(crate) fn row(&self, id: i64) -> Result<Row, QueueError> {
        self.database(|database| database.get(id))?.ok_or(QueueError::NotFound(id))
    }

    /// Returns a page of transfers: what runs first, what has ended last.
    ///
    /// # Errors
    /// [`QueueError::Invalid`] for a cursor that is none.
    pub fn page(
        &self,
        state: Option<TransferState>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<TransferPage, QueueError> {
        let after = after.map(str::parse::<PageCursor>).transpose().map_err(QueueError::Invalid)?;
        let page = self.database(|database| database.page(state, after, limit))?;
        Ok(TransferPage {
            transfers: page.rows.into_iter().map(|row| self.shown(row)).collect(),
            next: page.next.map(|next| next.to_string()),
            total: page.total,
            counts: page.counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
        })
    }

    /// Returns the transfers that were added last, the latest first.
    ///
    /// # Errors
    /// [`QueueError::Database`].
    pub fn newest(&self, limit: usize) -> Result<TransferPage, QueueError> {
        let page = self.database(|database| database.newest(limit))?;
        Ok(TransferPage {
            transfers: page.rows.into_iter().map(|row| self.shown(row)).collect(),
            next: None,
            total: page.total,
            counts: page.counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
        })
    }

    /// Adds to what is stored how a running transfer stands.
    pub(crate) fn shown(&self, row: Row) -> Transfer {
        let mut transfer = row.transfer;
        if let Some(live) = self.live(transfer.id) {
            live.show_in(&mut transfer);
        }
        transfer
    }

    /// Tells clients that a transfer has changed.
    pub(crate) fn tell(&self, transfer: &Transfer) {
        if !self.is_offered(transfer.id) {
            self.events.send(|| AgentEvent::Transfer(crate::json(transfer).into()));
        }
    }

    /// Reads a transfer and sends an event of it.
    pub(crate) fn changed(&self, id: i64) -> Result<Transfer, QueueError> {
        let transfer = self.transfer(id)?;
        self.tell(&transfer);
        Ok(transfer)
    }

    /// Changes the state of a transfer where its present one is allowed.
    fn change(
        &self,
        id: i64,
        wanted: &'static str,
        allowed: impl Fn(TransferState) -> bool,
        change: impl FnOnce(&mut Database, &Transfer) -> Result<(), crate::database::DatabaseError>,
    ) -> Result<Transfer, QueueError> {
        self.database(|database| {
            let transfer = database.get(id)?.ok_or(QueueError::NotFound(id))?.transfer;
            if !allowed(transfer.state) {
                return Err(QueueError::WrongState { id, state: transfer.state, wanted });
            }
            Ok(change(database, &transfer)?)
        })?;
        self.wake();
        self.changed(id)
    }

    /// Pauses a transfer; what is there is kept.
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn pause(&self, id: i64) -> Result<Transfer, QueueError> {
        let paused = self.change(
            id,
            "paused",
            |state| !state.is_ended(),
            |database, _| database.set_state(id, TransferState::Paused, unix_now()),
        );
        self.stop_live(id);
        paused
    }

    /// Lets a transfer go on.
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn resume(&self, id: i64) -> Result<Transfer, QueueError> {
        use TransferState::{Paused, Queued, Running, Scheduled, WaitingLink};
        let allowed = |state| matches!(state, Paused | WaitingLink | Scheduled | Queued | Running);
        self.change(id, "resumed", allowed, |database, transfer| match transfer.state {
            Queued | Running => Ok(()),
            _ => database.requeue(id, Queued),
        })
    }

    /// Gives up a transfer; its partial file stays.
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn cancel(&self, id: i64) -> Result<Transfer, QueueError> {
        let cancelled = self.change(
            id,
            "cancelled",
            |state| !state.is_ended(),
            |database, _| database.set_state(id, TransferState::Cancelled, unix_now()),
        );
        self.stop_live(id);
        cancelled
    }

    /// Tries a transfer again that has failed or was given up.
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn retry(&self, id: i64) -> Result<Transfer, QueueError> {
        use TransferState::{Cancelled, Failed, Scheduled, WaitingLink};
        let allowed = |state| matches!(state, Failed | Cancelled | WaitingLink | Scheduled);
        self.change(id, "retried", allowed, |database, _| database.requeue(id, TransferState::Queued))
    }

    /// Replaces the link of a transfer, which continues from what is there.
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn refresh(&self, id: i64, url: &str, headers: Option<Vec<String>>) -> Result<Transfer, QueueError> {
        let mut request = self.request(id)?;
        request.refresh(url, headers)?;
        let (sealed, shown) = (self.seal(&request), request.shown_urls());
        let allowed = |state| !matches!(state, TransferState::Done | TransferState::Running);
        self.change(id, "given another link", allowed, |database, transfer| {
            database.set_request(id, &sealed, &shown)?;
            match transfer.state {
                TransferState::Paused | TransferState::Queued => Ok(()),
                _ => database.requeue(id, TransferState::Queued),
            }
        })
    }

    /// Moves a transfer before another one, or to the end.
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn place(&self, id: i64, before: Option<i64>) -> Result<Transfer, QueueError> {
        self.row(id)?;
        if let Some(before) = before {
            self.row(before)?;
        }
        self.database(|database| database.place(id, before))?;
        self.replaced(id)
    }

    /// Changes the priority, or the ceiling, of a transfer; a running one keeps to the new ceiling at once.
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn patch(
        &self,
        id: i64,
        priority: Option<i64>,
        limit: Option<Option<u64>>,
    ) -> Result<Transfer, QueueError> {
        self.row(id)?;
        if limit.flatten().is_some_and(|rate| rate < 8) {
            return Err(QueueError::Invalid("limit_bps must be at least 8, or null".to_owned()));
        }
        priority.map_or(Ok(()), crate::request::check_priority)?;
        self.database(|database| database.patch(id, priority, limit))?;
        if let (Some(limit), Some(live)) = (limit, self.live(id)) {
            live.limit.set(limit.map(Rate::bits_per_sec));
        }
        self.replaced(id)
    }

    /// Lets the runner, and clients, know of a transfer's new place.
    fn replaced(&self, id: i64) -> Result<Transfer, QueueError> {
        let transfer = self.changed(id)?;
        if let Some(live) = self.live(id) {
            live.priority.store(transfer.priority, Ordering::Relaxed);
            live.position.store(transfer.position, Ordering::Relaxed);
        }
        self.wake();
        Ok(transfer)
    }

    /// Removes an ended transfer from the list, and its record.
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn remove(&self, id: i64) -> Result<(), QueueError> {
        let live = self.live(id).is_some();
        self.database(|database| {
            let state = database.get(id)?.ok_or(QueueError::NotFound(id))?.transfer.state;
            if !state.is_ended() || live {
                return Err(QueueError::WrongState { id, state, wanted: "removed before it has ended" });
            }
            Ok(database.remove(id)?)
        })?;
        // It may never have had one.
        let _ = std::fs::remove_file(self.paths.record(id));
        if self.is_offered(id) {
            return Ok(());
        }
        self.events.send(|| AgentEvent::Removed(format!("{{\"id\":{id}}}").into()));
        Ok(())
    }

    /// Returns the settings.
    pub fn settings(&self) -> Settings {
        lock(&self.settings).clone()
    }

    /// Changes the settings.
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn change_settings(&self, patch: SettingsPatch) -> Result<Settings, QueueError> {
        let mut settings = lock(&self.settings);
        let changed = settings.with(patch)?;
        self.database(|database| database.set_settings(&changed))?;
        *settings = changed.clone();
        drop(settings);
        self.wake();
        Ok(changed)
    }

    /// Returns the totals.
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn stats(&self) -> Result<Stats, QueueError> {
        let counts = self.database(|database| database.count())?;
        let count = |state: TransferState| counts.get(state.name()).copied().unwrap_or_default();
        let live = self.all_live();
        Ok(Stats {
            active: live.len() as u64,
            waiting: count(TransferState::Queued) + count(TransferState::Scheduled),
            goodput_bps: live.iter().map(|live| live.goodput()).sum(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
        })
    }

    /// Returns a running transfer.
    pub(crate) fn live(&self, id: i64) -> Option<Arc<Live>> {
        lock(&self.live).get(&id).cloned()
    }

    /// Returns all running transfers.
    pub(crate) fn all_live(&self) -> Vec<Arc<Live>> {
        lock(&self.live).values().cloned().collect()
    }

    pub(crate) fn insert_live(&self, live: Arc<Live>) {
        lock(&self.live).insert(live.id, live);
    }

    pub(crate) fn remove_live(&self, id: i64) {
        lock(&self.live).remove(&id);
    }

    fn stop_live(&self, id: i64) {
        if let Some(live) = self.live(id) {
            live.cancel.cancel();
        }
    }

    /// Lets the runner look at the queue.
    pub(crate) fn wake(&self) {
        *lock(&self.wake.called) = true;
        self.wake.changed.notify_all();
    }

    /// Waits until [`wake`](Self::wake) is called, for `most` at most; without it, for as long as it takes.
    pub(crate) fn wait(&self, most: Option<Duration>) {
        let called = lock(&self.wake.called);
        let quiet = |called: &mut bool| !*called;
        let mut called = match most {
            None => {
                self.wake.changed.wait_while(called, quiet).unwrap_or_else(std::sync::PoisonError::into_inner)
            }
            Some(most) => {
                let waited = self.wake.changed.wait_timeout_while(called, most, quiet);
                waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
            }
        };
        *called = false;
    }

    /// Ends all runs; what they were at stays queued.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.events.send(|| AgentEvent::Stopping);
        self.all_live().iter().for_each(|live| live.cancel.cancel());
        self.wake();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// Returns the seconds since 1970; 0 for a clock before that.
pub(crate) fn unix_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
