//! The queue of stored and running transfers.

mod listing;
mod live_runs;
mod operations;

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_core::failure::FailureKind;
use longhaul_core::units::Bytes;
use longhaul_engine::engine::Engine;
use longhaul_engine::rate_limit::RateLimit;
use longhaul_engine::sink::memory_budget::AppBuffer;
use parking_lot::Mutex;

pub use listing::{Stats, TransferPage};
use live_runs::LiveRuns;

use crate::database::{Database, MAX_ROWS, NewTransfer, TransferRow};
use crate::error::{AgentError, QueueError};
use crate::events::{Events, STOPPING, TRANSFER};
use crate::farm::Farm;
use crate::paths::{self, AgentPaths};
use crate::request::TransferRequest;
use crate::scope::Scope;
use crate::secrets::SecretBox;
use crate::settings::{FarmSettings, Settings, SettingsPatch};
use crate::transfer::{Transfer, TransferState};

/// The maximum number of transfers added by one request.
const MAX_AT_ONCE: usize = 100_000;

/// Maps kinds of failure to exit codes, which the command line chooses.
pub type ExitCodes = fn(FailureKind) -> u8;

/// The queue, shared by the API and the runner.
pub struct Queue {
    pub(crate) paths: AgentPaths,
    pub(crate) engine: Engine,
    pub(crate) events: Events,
    pub(crate) secrets: SecretBox,
    pub(crate) runs: LiveRuns,
    pub(crate) exit_code: ExitCodes,
    pub(crate) farm: Option<Farm>,
    database: Mutex<Database>,
    settings: Mutex<Settings>,
    /// Offered, not yet accepted transfers, with the size in the browser's answer. No events are
    /// sent about them, and they do not count against `concurrent`.
    offered: Mutex<HashMap<i64, Option<Bytes>>>,
}

impl Queue {
    /// Opens the queue; moves a damaged database aside. `farm` is that of the agent, or by default
    /// that of the last agent.
    ///
    /// # Errors
    /// [`AgentError`].
    pub(crate) fn open(
        paths: AgentPaths,
        exit_code: ExitCodes,
        farm: Option<Option<FarmSettings>>,
    ) -> Result<Self, AgentError> {
        let mut opened = Database::open(&paths.state.join(paths::DATABASE), unix_now())?;
        if let Some((aside, why)) = opened.damaged {
            tracing::error!(
                "the queue {} is damaged ({why}): it is kept as {}, and a new queue begins",
                paths.state.join(paths::DATABASE).display(),
                aside.display()
            );
        }
        let key = paths.state.join(paths::KEY);
        let farm = match farm {
            Some(farm) => farm,
            None => opened.database.doors()?.farm,
        };
        let (farm, secrets) = match farm {
            Some(farm) => {
                let (farm, secrets) = Farm::join(&mut opened.database, &farm, &paths)?;
                (Some(farm), secrets)
            }
            None => {
                let secrets = SecretBox::open(&key);
                (None, secrets.map_err(|source| AgentError::file("use the key", &key, source))?)
            }
        };
        let settings = match Settings::default().with(opened.database.settings()?) {
            Ok(settings) => settings,
            // Another version may permit more.
            Err(error) => {
                tracing::warn!("the settings are the default ones again: {error}");
                opened.database.set_settings(&SettingsPatch::default())?;
                Settings::default()
            }
        };
        Ok(Self {
            paths,
            engine: Engine::new(AppBuffer::Auto),
            events: Events::new(),
            secrets,
            runs: LiveRuns::new(RateLimit::adjustable(settings.usual().rate)),
            exit_code,
            farm,
            database: Mutex::new(opened.database),
            settings: Mutex::new(settings),
            offered: Mutex::default(),
        })
    }

    /// Calls `with` with the locked database.
    pub(crate) fn database<T>(&self, with: impl FnOnce(&mut Database) -> T) -> T {
        with(&mut self.database.lock())
    }

    /// Calls `with` in one transaction.
    fn atomically<T>(
        &self,
        with: impl FnOnce(&mut Database) -> Result<T, QueueError>,
    ) -> Result<T, QueueError> {
        self.database(|database| database.atomically(with))
    }

    /// Adds transfers as far as `scope` permits them; returns once they are stored durably.
    ///
    /// # Errors
    /// [`QueueError`]; then none of them is added, but for [`QueueError::PartlyAdded`] in a farm.
    pub(crate) fn add(
        &self,
        requests: Vec<TransferRequest>,
        scope: Scope,
    ) -> Result<Vec<Transfer>, QueueError> {
        let now = self.now();
        let transfers = self.checked(requests, scope, now)?;
        // The database of a farm may be far away: leases are renewed between parts of a long list.
        let most = if self.farm.is_some() { MAX_ROWS } else { transfers.len().max(1) };
        let mut ids = Vec::with_capacity(transfers.len());
        for part in transfers.chunks(most) {
            match self.database(|database| add_with_gids(database, part, now)) {
                Ok(added) => ids.extend(added),
                Err(error) if ids.is_empty() => return Err(error),
                Err(error) => {
                    self.runs.wake();
                    self.events.resync();
                    return Err(QueueError::PartlyAdded { added: ids.len(), source: Box::new(error) });
                }
            }
        }
        self.runs.wake();
        let mut added = Vec::with_capacity(ids.len());
        for ids in ids.chunks(most) {
            let rows = self.database(|database| database.get_all(ids))?;
            added.extend(rows.into_iter().map(|row| self.shown(row)));
        }
        added.iter().for_each(|transfer| self.tell(transfer));
        self.tell_stats();
        Ok(added)
    }

    /// Adds an offered transfer of a file of `size`; sends no event.
    pub(crate) fn add_offered(
        &self,
        request: TransferRequest,
        size: Option<Bytes>,
    ) -> Result<Vec<Transfer>, QueueError> {
        if self.farm.is_some() {
            let why = "the agent is in a farm, whose transfers any of its hosts may run".to_owned();
            return Err(QueueError::Refused(why));
        }
        let now = self.now();
        // An offer is a browser's, whatever the token: one that is withdrawn must have replaced no
        // file.
        let mut transfers = self.checked(vec![request], Scope::Downloads, now)?;
        transfers.iter_mut().for_each(|transfer| transfer.offered = true);
        // Locked until the numbers are known, so that the runner does not count the transfers.
        let mut offered = self.offered.lock();
        let ids = self.database(|database| database.add(&transfers, now))?;
        offered.extend(ids.iter().map(|id| (*id, size)));
        drop(offered);
        ids.into_iter().map(|id| self.transfer(id)).collect()
    }

    /// Returns whether a transfer is offered and not yet accepted.
    pub(crate) fn is_offered(&self, id: i64) -> bool {
        self.offered.lock().contains_key(&id)
    }

    /// Returns the size of an offered, not yet accepted transfer.
    pub(crate) fn offered_size(&self, id: i64) -> Option<Bytes> {
        self.offered.lock().get(&id).copied().flatten()
    }

    /// Turns an offered transfer into a regular one.
    pub(crate) fn settle_offer(&self, id: i64) {
        self.offered.lock().remove(&id);
    }

    /// Checks requests, and returns the transfers to add for them.
    fn checked(
        &self,
        requests: Vec<TransferRequest>,
        scope: Scope,
        now: i64,
    ) -> Result<Vec<NewTransfer>, QueueError> {
        if requests.len() > MAX_AT_ONCE {
            return Err(QueueError::Invalid(format!(
                "one request adds at most {MAX_AT_ONCE} transfers: split it"
            )));
        }
        let directory = self.settings().directory;
        let mut transfers = Vec::with_capacity(requests.len());
        for request in requests {
            let requests = scope.confined(request, &directory)?.normalised(&directory)?;
            let new = |(index, request)| self.new_transfer(request, index, now);
            transfers.extend(requests.into_iter().enumerate().map(new));
        }
        Ok(transfers)
    }

    fn new_transfer(&self, request: TransferRequest, index: usize, now: i64) -> NewTransfer {
        let state = match request.queue.at {
            _ if request.queue.paused => TransferState::Paused,
            Some(at) if at > now => TransferState::Scheduled,
            _ => TransferState::Queued,
        };
        NewTransfer {
            // A request with several paths becomes several transfers.
            key: request.key.as_ref().map(|key| format!("{key}/{index}")),
            gid: request.gid,
            state,
            sealed: self.seal(&request),
            request,
            offered: false,
        }
    }

    fn seal(&self, request: &TransferRequest) -> Vec<u8> {
        self.secrets.seal(&serde_json::to_vec(request).unwrap_or_default())
    }

    /// Unseals the request of a transfer.
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

    pub(crate) fn row(&self, id: i64) -> Result<TransferRow, QueueError> {
        self.database(|database| database.get(id))?.ok_or(QueueError::NotFound(id))
    }

    /// Adds the progress of a running transfer to its stored data.
    pub(crate) fn shown(&self, row: TransferRow) -> Transfer {
        let mut transfer = row.transfer;
        if let Some(live) = self.runs.get(transfer.id) {
            transfer.progress = live.progress_after(&transfer.progress);
        }
        transfer
    }

    /// Sends a change of a transfer to clients.
    pub(crate) fn tell(&self, transfer: &Transfer) {
        if !self.is_offered(transfer.id) {
            self.events.send(TRANSFER, || crate::json(transfer));
        }
    }

    /// Sends the totals to clients.
    pub(crate) fn tell_stats(&self) {
        if self.events.has_receivers()
            && let Ok(stats) = self.stats()
        {
            self.events.send("stats", || crate::json(&stats));
        }
    }

    /// Reads a transfer and sends its change to clients.
    pub(crate) fn changed(&self, id: i64) -> Result<Transfer, QueueError> {
        let transfer = self.transfer(id)?;
        self.tell(&transfer);
        Ok(transfer)
    }

    /// Returns the settings.
    pub fn settings(&self) -> Settings {
        self.settings.lock().clone()
    }

    /// Changes the settings.
    ///
    /// # Errors
    /// [`QueueError`].
    pub fn change_settings(&self, patch: SettingsPatch) -> Result<Settings, QueueError> {
        let mut settings = self.settings.lock();
        let changed = settings.clone().with(patch.clone())?;
        self.database(|database| {
            let all = database.settings()?.and_then(patch);
            database.set_settings(&all)
        })?;
        *settings = changed.clone();
        drop(settings);
        self.runs.wake();
        Ok(changed)
    }

    /// Ends all runs; their transfers stay queued.
    pub(crate) fn stop(&self) {
        self.runs.stop();
        self.events.send(STOPPING, String::new);
        self.runs.all().iter().for_each(|live| live.cancel.cancel());
        self.runs.wake();
    }
}

/// Adds transfers, all or none, unless one of the chosen identifiers is another's; returns their
/// numbers.
fn add_with_gids(
    database: &mut Database,
    transfers: &[NewTransfer],
    now: i64,
) -> Result<Vec<i64>, QueueError> {
    for gid in transfers.iter().filter_map(|transfer| transfer.gid) {
        if database.id_of_gid(gid)?.is_some() {
            return Err(QueueError::Invalid(format!("GID {gid:016x} is not unique")));
        }
    }
    Ok(database.add(transfers, now)?)
}

/// Returns the seconds since 1970; 0 for an earlier clock.
pub(crate) fn unix_now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
