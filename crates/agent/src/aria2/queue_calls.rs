//! aria2's methods as operations on the queue.

use std::path::Path;
use std::sync::LazyLock;
use std::time::SystemTime;

use longhaul_core::proto::aria2_rpc::{
    Gid, GlobalOptions, GlobalStat, JobOptions, Keys, Method, Move, NOTIFICATIONS, PlaceOptions, RpcError,
    State, methods, uris,
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
/// The maximum number of ended transfers reported per state: aria2's default (`--max-download-result=1000`).
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

/// Returns the number of the transfer with this identifier.
fn id(queue: &Queue, gid: Gid) -> Result<i64, RpcError> {
    queue
        .database(|database| database.id_of_gid(gid.number()))
        .map_err(|error| refused(error.into()))?
        .ok_or(RpcError::NoGid(gid))
}

/// Executes a method as far as `scope` permits it.
///
/// # Errors
/// [`RpcError`].
pub(super) fn carry_out(queue: &Queue, method: Method, scope: Scope) -> Result<Value, RpcError> {
    let transfer = |gid| queue.transfer(id(queue, gid)?).map_err(refused);
    match method {
        Method::TellStatus { gid, keys } => Ok(status(queue, &transfer(gid)?).to_json(&keys)),
        Method::GetUris(gid) => Ok(uris(&transfer(gid)?.ends.urls)),
        Method::GetFiles(gid) => Ok(status(queue, &transfer(gid)?).files()),
        Method::GetServers(gid) => Ok(status(queue, &transfer(gid)?).servers()),
        Method::GetPeers(gid) => transfer(gid).map(|_| json!([])),
        Method::GetOption(gid) => Ok(options_of(queue, &transfer(gid)?).to_json()),
        Method::TellActive(keys) => {
            Ok(statuses(queue, &of_state(queue, TransferState::Running, usize::MAX)?, &keys))
        }
        Method::TellWaiting { offset, count, keys } => {
            Ok(statuses(queue, &slice(waiting(queue)?, offset, count), &keys))
        }
        Method::TellStopped { offset, count, keys } => {
            Ok(statuses(queue, &slice(stopped(queue)?, offset, count), &keys))
        }
        Method::GetGlobalStat => global_stat(queue),
        Method::GetGlobalOption => Ok(global_options(&queue.settings()).to_json()),
        Method::GetVersion => Ok(json!({
            "version": ARIA2_VERSION,
            "enabledFeatures": ["GZip", "HTTPS", "Message Digest", "Metalink"],
            "longhaul": env!("CARGO_PKG_VERSION"),
        })),
        Method::GetSessionInfo => Ok(json!({"sessionId": *SESSION})),
        Method::ListMethods => Ok(methods().collect()),
        Method::ListNotifications => Ok(json!(NOTIFICATIONS)),
        action => act(queue, action, scope),
    }
}

/// Executes a method that changes the queue.
fn act(queue: &Queue, method: Method, scope: Scope) -> Result<Value, RpcError> {
    let named = |transfer: Transfer| json!(gid(&transfer).to_string());
    let (done, id) = (|()| json!("OK"), |gid| id(queue, gid));
    let add = |requests: Vec<TransferRequest>, place| {
        let added = queue.add(requests, scope).map_err(refused)?;
        at_place(queue, &added, place)?;
        Ok::<_, RpcError>(added)
    };
    match method {
        Method::AddUri { uris, options, place } => {
            let gid = options.gid.map(Gid::number);
            let request = TransferRequest { gid, ..TransferRequest::of_urls(uris) };
            let added = add(vec![with_options(request, &options)], place)?;
            Ok(added.into_iter().next().map_or(Value::Null, named))
        }
        Method::AddMetalink { document, options, place } => {
            let requests = request::of_metalink(&document).map_err(refused)?;
            let requests = requests.into_iter().map(|request| with_options(request, &options)).collect();
            Ok(add(requests, place)?.into_iter().map(named).collect())
        }
        Method::Remove(gid) => queue.cancel(id(gid)?).map(named).map_err(refused),
        Method::Pause(gid) => queue.pause(id(gid)?).map(named).map_err(refused),
        Method::Unpause(gid) => queue.resume(id(gid)?).map(named).map_err(refused),
        Method::PauseAll => {
            let mut all = of_state(queue, TransferState::Running, usize::MAX)?;
            all.extend(waiting(queue)?);
            each(all, |transfer| transfer.state != TransferState::Paused, |id| queue.pause(id)).map(done)
        }
        Method::UnpauseAll => {
            each(waiting(queue)?, |transfer| transfer.state == TransferState::Paused, |id| queue.resume(id))
                .map(done)
        }
        Method::ChangePosition { gid, to } => change_position(queue, gid, to),
        Method::ChangeOption { gid, options } => {
            let limit = options.limit.map(limit_bps);
            queue.patch(id(gid)?, None, limit).map(|_| json!("OK")).map_err(refused)
        }
        Method::ChangeGlobalOption(options) => {
            let patch = SettingsPatch {
                concurrent: options.global.concurrent,
                limit_bps: options.global.limit.map(limit_bps),
                directory: options.place.dir.map(|directory| Some(directory.into())),
                ..SettingsPatch::default()
            };
            scope.check_settings(&patch).map_err(refused)?;
            queue.change_settings(patch).map(|_| json!("OK")).map_err(refused)
        }
        Method::PurgeDownloadResult => {
            // Transfers that wait for a new link keep their partial files, which only the list refers to.
            each(stopped(queue)?, |transfer| transfer.state.is_ended(), |id| queue.remove(id, false))
                .map(done)
        }
        Method::RemoveDownloadResult(gid) => remove_result(queue, id(gid)?),
        Method::SaveSession => Ok(json!("OK")),
        query => Err(RpcError::Refused(format!("{query:?} changes nothing"))),
    }
}

/// Calls `operation` for each transfer that `applies`; skips one that has changed its state meanwhile.
fn each<T>(
    all: Vec<Transfer>,
    applies: impl Fn(&Transfer) -> bool,
    operation: impl Fn(i64) -> Result<T, QueueError>,
) -> Result<(), RpcError> {
    for transfer in all.iter().filter(|transfer| applies(transfer)) {
        match operation(transfer.id) {
            Ok(_) | Err(QueueError::WrongState { .. } | QueueError::NotFound(_)) => {}
            Err(error) => return Err(refused(error)),
        }
    }
    Ok(())
}

fn remove_result(queue: &Queue, id: i64) -> Result<Value, RpcError> {
    let transfer = queue.transfer(id).map_err(refused)?;
    if transfer.state == TransferState::WaitingLink {
        queue.cancel(id).map_err(refused)?;
    }
    queue.remove(id, false).map_err(refused)?;
    Ok(json!("OK"))
}

/// In aria2, zero means no limit.
fn limit_bps(rate: Rate) -> Option<u64> {
    Some(rate.as_bits_per_sec()).filter(|rate| *rate > 0)
}

fn with_options(request: TransferRequest, options: &JobOptions) -> TransferRequest {
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

fn options_of(queue: &Queue, transfer: &Transfer) -> JobOptions {
    let current = status(queue, transfer);
    JobOptions {
        place: PlaceOptions {
            dir: Some(current.dir),
            out: Some(transfer.ends.name.clone()),
            ..PlaceOptions::default()
        },
        limit: Some(Rate::bits_per_sec(transfer.conditions.limit_bps.unwrap_or(0))),
        pause: transfer.state == TransferState::Paused,
        ..JobOptions::default()
    }
}

fn global_options(settings: &Settings) -> JobOptions {
    JobOptions {
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
        ..JobOptions::default()
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

/// Moves a transfer; returns its new position.
fn change_position(queue: &Queue, gid: Gid, to: Move) -> Result<Value, RpcError> {
    let moved = id(queue, gid)?;
    let all: Vec<i64> = waiting(queue)?.iter().map(|transfer| transfer.id).collect();
    let current = all.iter().position(|id| *id == moved);
    let current =
        current.ok_or_else(|| RpcError::Refused(format!("GID#{gid} not found in the waiting queue.")))?;
    let place = to.place(current, all.len());
    let others: Vec<i64> = all.into_iter().filter(|id| *id != moved).collect();
    if place != current {
        queue.place(moved, others.get(place).copied()).map_err(refused)?;
    }
    Ok(json!(place))
}
