//! aria2's methods as operations on the queue.

use std::path::Path;
use std::sync::LazyLock;
use std::time::SystemTime;

use longhaul_core::proto::aria2_rpc::{
    Aria2Options, Gid, GlobalOptions, GlobalStat, Keys, NOTIFICATIONS, Params, PlaceOptions, RpcError, State,
    uris,
};
use longhaul_core::units::Rate;
use serde_json::{Value, json};

use super::transfer_status::{gid, state, status};
use crate::error::QueueError;
use crate::queue::Queue;
use crate::request::{
    self, AccessOptions, IfExistsSetting, QueueOptions, StreamsSetting, TargetFile, TransferRequest,
    TuningOptions,
};
use crate::scope::Scope;
use crate::settings::{Settings, SettingsPatch};
use crate::transfer::{Transfer, TransferKind, TransferState};

/// The emulated version of aria2, which clients compare.
const ARIA2_VERSION: &str = "1.37.0";
/// The maximum number of ended transfers reported per state: aria2's default
/// (`--max-download-result=1000`).
const MAX_STOPPED: usize = 1000;
/// The number of transfers read from the queue at a time.
const PAGE_LENGTH: usize = 1000;

/// The states that aria2 lists as stopped.
const STOPPED: [TransferState; 4] =
    [TransferState::Done, TransferState::Failed, TransferState::Cancelled, TransferState::WaitingLink];

/// An identifier of this run with 40 digits, as in aria2.
static SESSION: LazyLock<String> = LazyLock::new(|| {
    let started = format!("{:?} {}", SystemTime::now(), std::process::id());
    blake3::hash(started.as_bytes()).to_hex()[..40].to_owned()
});

fn refused(error: QueueError) -> RpcError {
    match error {
        QueueError::NotFound(id) => RpcError::NoGid(Gid::new(id.unsigned_abs())),
        other => RpcError::Refused(other.to_string()),
    }
}

/// A call of a method.
struct MethodCall<'a> {
    queue: &'a Queue,
    params: Params<'a>,
    /// What the call may change.
    scope: Scope,
}

/// Executes a method.
type Execute = fn(&MethodCall<'_>) -> Result<Value, RpcError>;

/// The methods. The forced variants are equal to the plain ones, because neither a pause nor a
/// cancel waits for a server. No method saves a session, because every change is saved.
static METHODS: [(&str, Execute); 31] = [
    ("aria2.addUri", add_uri),
    ("aria2.addMetalink", add_metalink),
    ("aria2.remove", |call| call.change(Queue::cancel)),
    ("aria2.forceRemove", |call| call.change(Queue::cancel)),
    ("aria2.pause", |call| call.change(Queue::pause)),
    ("aria2.pauseAll", pause_all),
    ("aria2.forcePause", |call| call.change(Queue::pause)),
    ("aria2.forcePauseAll", pause_all),
    ("aria2.unpause", |call| call.change(Queue::resume)),
    ("aria2.unpauseAll", |call| {
        let is_paused = |transfer: &Transfer| transfer.state == TransferState::Paused;
        each(waiting(call.queue)?, is_paused, |id| call.queue.resume(id))
    }),
    ("aria2.tellStatus", |call| {
        let (gid, keys) = (call.params.gid(0)?, call.params.keys(1)?);
        Ok(status(call.queue, &call.transfer(gid)?).to_json(&keys))
    }),
    ("aria2.getUris", |call| Ok(uris(&call.first()?.ends.urls))),
    ("aria2.getFiles", |call| Ok(status(call.queue, &call.first()?).files())),
    ("aria2.getPeers", |call| call.first().map(|_| json!([]))),
    ("aria2.getServers", |call| Ok(status(call.queue, &call.first()?).servers())),
    ("aria2.tellActive", |call| {
        let keys = call.params.keys(0)?;
        Ok(statuses(call.queue, &of_state(call.queue, TransferState::Running, usize::MAX)?, &keys))
    }),
    ("aria2.tellWaiting", |call| call.tell(waiting)),
    ("aria2.tellStopped", |call| call.tell(stopped)),
    ("aria2.changePosition", change_position),
    ("aria2.getOption", |call| Ok(options_of(call.queue, &call.first()?).to_json())),
    ("aria2.changeOption", |call| {
        let (gid, options) = (call.params.gid(0)?, call.params.options(1)?);
        done(call.queue.patch(call.id(gid)?, None, options.limit.map(limit_bps)))
    }),
    ("aria2.getGlobalOption", |call| Ok(global_options(&call.queue.settings()).to_json())),
    ("aria2.changeGlobalOption", change_settings),
    ("aria2.getGlobalStat", |call| global_stat(call.queue)),
    ("aria2.purgeDownloadResult", |call| {
        // Transfers that wait for a new link keep their partial files, which only the list refers
        // to.
        let is_ended = |transfer: &Transfer| transfer.state.is_ended();
        each(stopped(call.queue)?, is_ended, |id| call.queue.remove(id, false))
    }),
    ("aria2.removeDownloadResult", |call| {
        let transfer = call.first()?;
        if transfer.state == TransferState::WaitingLink {
            call.queue.cancel(transfer.id).map_err(refused)?;
        }
        done(call.queue.remove(transfer.id, false))
    }),
    ("aria2.getVersion", |_| {
        Ok(json!({
            "version": ARIA2_VERSION,
            "enabledFeatures": ["GZip", "HTTPS", "Message Digest", "Metalink"],
            "longhaul": env!("CARGO_PKG_VERSION"),
        }))
    }),
    ("aria2.getSessionInfo", |_| Ok(json!({"sessionId": *SESSION}))),
    ("aria2.saveSession", |_| Ok(json!("OK"))),
    ("system.listMethods", |_| Ok(method_names().collect())),
    ("system.listNotifications", |_| Ok(json!(NOTIFICATIONS))),
];

/// Returns the names of all methods: those that [`execute`] accepts, and `system.multicall`, whose
/// calls are executed one by one.
fn method_names() -> impl Iterator<Item = &'static str> {
    METHODS.iter().map(|(name, _)| *name).chain(["system.multicall"])
}

/// Executes a method as far as `scope` permits it.
///
/// # Errors
/// [`RpcError`].
pub(super) fn execute(
    queue: &Queue,
    method: &str,
    params: &[Value],
    scope: Scope,
) -> Result<Value, RpcError> {
    let known = METHODS.iter().find(|(name, _)| *name == method);
    let (_, execute) = known.ok_or_else(|| RpcError::NoMethod(method.to_owned()))?;
    execute(&MethodCall { queue, params: Params::new(params), scope })
}

/// Returns the result of an operation that has no other.
fn done<T>(result: Result<T, QueueError>) -> Result<Value, RpcError> {
    result.map(|_| json!("OK")).map_err(refused)
}

fn named(transfer: &Transfer) -> Value {
    json!(gid(transfer).to_string())
}

impl MethodCall<'_> {
    /// Returns the number of the transfer with this identifier.
    fn id(&self, gid: Gid) -> Result<i64, RpcError> {
        self.queue
            .database(|database| database.id_of_gid(gid.number()))
            .map_err(|error| refused(error.into()))?
            .ok_or(RpcError::NoGid(gid))
    }

    fn transfer(&self, gid: Gid) -> Result<Transfer, RpcError> {
        self.queue.transfer(self.id(gid)?).map_err(refused)
    }

    /// Returns the transfer that the first parameter names.
    fn first(&self) -> Result<Transfer, RpcError> {
        self.transfer(self.params.gid(0)?)
    }

    /// Changes the transfer that the first parameter names.
    fn change(&self, operation: fn(&Queue, i64) -> Result<Transfer, QueueError>) -> Result<Value, RpcError> {
        let id = self.id(self.params.gid(0)?)?;
        operation(self.queue, id).map(|transfer| named(&transfer)).map_err(refused)
    }

    fn tell(&self, list: fn(&Queue) -> Result<Vec<Transfer>, RpcError>) -> Result<Value, RpcError> {
        let (offset, count, keys) = self.params.range()?;
        Ok(statuses(self.queue, &slice(list(self.queue)?, offset, count), &keys))
    }

    /// Adds transfers, and moves them to `place`, if given.
    fn add(&self, requests: Vec<TransferRequest>, place: Option<usize>) -> Result<Vec<Transfer>, RpcError> {
        let added = self.queue.add(requests, self.scope).map_err(refused)?;
        at_place(self.queue, &added, place)?;
        Ok(added)
    }
}

fn add_uri(call: &MethodCall<'_>) -> Result<Value, RpcError> {
    let (uris, options, place) = (call.params.uris(0)?, call.params.options(1)?, call.params.place(2)?);
    let gid = options.gid.map(Gid::number);
    let request = TransferRequest { gid, ..TransferRequest::of_urls(uris) };
    let added = call.add(vec![with_options(request, &options)], place)?;
    Ok(added.first().map_or(Value::Null, named))
}

fn add_metalink(call: &MethodCall<'_>) -> Result<Value, RpcError> {
    let (document, options) = (call.params.document(0)?, call.params.options(1)?);
    let place = call.params.place(2)?;
    let requests = request::of_metalink(&document).map_err(refused)?;
    let requests = requests.into_iter().map(|request| with_options(request, &options)).collect();
    Ok(call.add(requests, place)?.iter().map(named).collect())
}

fn pause_all(call: &MethodCall<'_>) -> Result<Value, RpcError> {
    let mut all = of_state(call.queue, TransferState::Running, usize::MAX)?;
    all.extend(waiting(call.queue)?);
    each(all, |transfer| transfer.state != TransferState::Paused, |id| call.queue.pause(id))
}

fn change_settings(call: &MethodCall<'_>) -> Result<Value, RpcError> {
    let options = call.params.options(0)?;
    let patch = SettingsPatch {
        concurrent: options.global.concurrent,
        limit_bps: options.global.limit.map(limit_bps),
        directory: options.place.dir.map(|directory| Some(directory.into())),
        ..SettingsPatch::default()
    };
    call.scope.check_settings(&patch).map_err(refused)?;
    done(call.queue.change_settings(patch))
}

/// Moves a transfer; returns its new position.
fn change_position(call: &MethodCall<'_>) -> Result<Value, RpcError> {
    let (gid, to) = call.params.movement()?;
    let moved = call.id(gid)?;
    let all: Vec<i64> = waiting(call.queue)?.iter().map(|transfer| transfer.id).collect();
    let current = all.iter().position(|id| *id == moved);
    let current =
        current.ok_or_else(|| RpcError::Refused(format!("GID#{gid} not found in the waiting queue.")))?;
    let place = to.place(current, all.len());
    let others: Vec<i64> = all.into_iter().filter(|id| *id != moved).collect();
    if place != current {
        call.queue.place(moved, others.get(place).copied()).map_err(refused)?;
    }
    Ok(json!(place))
}

/// Calls `operation` for each transfer that `applies`; skips one that has changed its state
/// meanwhile.
fn each<T>(
    all: Vec<Transfer>,
    applies: impl Fn(&Transfer) -> bool,
    operation: impl Fn(i64) -> Result<T, QueueError>,
) -> Result<Value, RpcError> {
    for transfer in all.iter().filter(|transfer| applies(transfer)) {
        match operation(transfer.id) {
            Ok(_) | Err(QueueError::WrongState { .. } | QueueError::NotFound(_)) => {}
            Err(error) => return Err(refused(error)),
        }
    }
    Ok(json!("OK"))
}

/// In aria2, zero means no limit.
fn limit_bps(rate: Rate) -> Option<u64> {
    Some(rate.as_bits_per_sec()).filter(|rate| *rate > 0)
}

fn with_options(request: TransferRequest, options: &Aria2Options) -> TransferRequest {
    let directory = options.place.dir.as_deref().unwrap_or_default();
    // A path with a trailing slash is a directory.
    let output = match &options.place.out {
        Some(out) => Some(Path::new(directory).join(out)),
        None => options.place.dir.as_ref().map(|dir| Path::new(dir).join("")),
    };
    let if_exists = match (options.place.overwrites, options.place.renames) {
        (Some(true), _) => IfExistsSetting::Replace,
        (_, Some(false)) => IfExistsSetting::Fail,
        _ => IfExistsSetting::Rename,
    };
    TransferRequest {
        target: TargetFile {
            output: output.or(request.target.output),
            if_exists: Some(if_exists),
            checksum: options.checksum.as_ref().map(ToString::to_string).or(request.target.checksum),
            ..request.target
        },
        access: AccessOptions {
            headers: options.requests.headers.clone(),
            user_agent: options.requests.user_agent.clone(),
            referrer: options.requests.referer.clone(),
            ..request.access
        },
        tuning: TuningOptions {
            streams: options.split.map_or(StreamsSetting::Auto, StreamsSetting::Fixed),
            limit_bps: options.limit.and_then(limit_bps),
            ..request.tuning
        },
        queue: QueueOptions {
            page_url: options.requests.referer.clone(),
            paused: options.pause,
            ..request.queue
        },
        ..request
    }
}

fn options_of(queue: &Queue, transfer: &Transfer) -> Aria2Options {
    let current = status(queue, transfer);
    Aria2Options {
        place: PlaceOptions {
            dir: Some(current.dir),
            out: Some(transfer.ends.name.clone()),
            ..PlaceOptions::default()
        },
        limit: Some(Rate::bits_per_sec(transfer.conditions.limit_bps.unwrap_or(0))),
        pause: transfer.state == TransferState::Paused,
        ..Aria2Options::default()
    }
}

fn global_options(settings: &Settings) -> Aria2Options {
    Aria2Options {
        place: PlaceOptions {
            dir: Some(settings.directory.display().to_string()),
            overwrites: Some(false),
            renames: Some(true),
            ..PlaceOptions::default()
        },
        global: GlobalOptions {
            limit: Some(Rate::bits_per_sec(settings.limit_bps.unwrap_or(0))),
            concurrent: Some(settings.concurrent),
        },
        ..Aria2Options::default()
    }
}

fn global_stat(queue: &Queue) -> Result<Value, RpcError> {
    let counts = queue.page(None, None, 1).map_err(refused)?.counts;
    let of = |wanted: &[State]| -> usize {
        let states = TransferState::ALL.into_iter().filter(|one| wanted.contains(&state(*one)));
        let count: u64 = states.filter_map(|state| counts.get(state.name())).sum();
        usize::try_from(count).unwrap_or(usize::MAX)
    };
    let running = of_state(queue, TransferState::Running, usize::MAX)?;
    let rate = |kind: fn(TransferKind) -> bool| {
        let rates = running
            .iter()
            .filter(|transfer| kind(transfer.kind))
            .map(|transfer| transfer.progress.run.goodput_bps);
        Rate::bits_per_sec(rates.sum())
    };
    let stat = GlobalStat {
        download: rate(|kind| kind != TransferKind::Put),
        upload: rate(|kind| kind == TransferKind::Put),
        active: of(&[State::Active]),
        waiting: of(&[State::Waiting, State::Paused]),
        stopped: of(&[State::Complete, State::Error, State::Removed]),
    };
    Ok(stat.to_json())
}

fn statuses(queue: &Queue, transfers: &[Transfer], keys: &Keys) -> Value {
    transfers.iter().map(|transfer| status(queue, transfer).to_json(keys)).collect()
}

/// Takes `count` transfers from `offset`; a negative offset counts backwards from the end.
fn slice(mut all: Vec<Transfer>, offset: i64, count: usize) -> Vec<Transfer> {
    let mut skipped = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
    if offset < 0 {
        all.reverse();
        skipped -= 1;
    }
    all.into_iter().skip(skipped).take(count).collect()
}

fn of_state(queue: &Queue, state: TransferState, most: usize) -> Result<Vec<Transfer>, RpcError> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = queue.page(Some(state), after.as_deref(), PAGE_LENGTH.min(most)).map_err(refused)?;
        all.extend(page.transfers);
        after = page.next;
        if after.is_none() || all.len() >= most {
            all.truncate(most);
            return Ok(all);
        }
    }
}

/// Returns the waiting and paused transfers, in the order in which they will run.
fn waiting(queue: &Queue) -> Result<Vec<Transfer>, RpcError> {
    let mut all = Vec::new();
    for state in [TransferState::Queued, TransferState::Scheduled, TransferState::Paused] {
        all.extend(of_state(queue, state, usize::MAX)?);
    }
    all.sort_by_key(|transfer| {
        (std::cmp::Reverse(transfer.place.priority), transfer.place.position, transfer.id)
    });
    Ok(all)
}

/// Returns the ended transfers, oldest first.
fn stopped(queue: &Queue) -> Result<Vec<Transfer>, RpcError> {
    let mut all = Vec::new();
    for state in STOPPED {
        all.extend(of_state(queue, state, MAX_STOPPED)?);
    }
    all.sort_by_key(|transfer| (transfer.times.ended, transfer.id));
    Ok(all)
}

/// Moves added transfers to `place`, if given.
fn at_place(queue: &Queue, added: &[Transfer], place: Option<usize>) -> Result<(), RpcError> {
    let Some(place) = place else { return Ok(()) };
    let others: Vec<i64> = waiting(queue)?.iter().map(|transfer| transfer.id).collect();
    let others: Vec<i64> =
        others.into_iter().filter(|id| added.iter().all(|transfer| transfer.id != *id)).collect();
    let before = others.get(place).copied();
    for transfer in added.iter().filter(|_| before.is_some()) {
        queue.place(transfer.id, before).map_err(refused)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::runner::tests::queue;

    #[test]
    fn methods_have_names_of_their_own_and_others_are_unknown() {
        let (_dir, queue) = queue();
        let names: BTreeSet<_> = method_names().collect();
        assert_eq!((names.len(), names.contains("system.multicall")), (METHODS.len() + 1, true));
        let error = execute(&queue, "aria2.addTorrent", &[], Scope::All).unwrap_err();
        assert_eq!((error.code(), error.http_status()), (-32_601, 404));
        let listed = execute(&queue, "system.listMethods", &[], Scope::All).unwrap();
        assert_eq!(listed.as_array().unwrap().len(), names.len());
    }
}
