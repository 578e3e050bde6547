//! Who chooses the number of a transfer's streams, what he is told at the start, and what is remembered at the end.

use std::time::Duration;

use longhaul_core::advice::Facts;
use longhaul_core::pace::Pace;
use longhaul_core::tune::MOST_STREAMS;
use longhaul_core::tune::apt::{Apt, Parameters};
use longhaul_core::tune::streams::{Remembered, Start, StreamTuner};
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::tcp_info;

use super::edge;
use super::opening::{Opening, handshake_rtt};
use super::remote::Remote;
use super::request::{AptSettings, GetRequest, Streams};
use super::shared::Shared;
use super::tuned::Tuning;
use crate::path_memory::{Endpoint, KnownPath};
use crate::source::http::Connection;

/// The window in force before anything has come, where the kernel does not tell it (`tcp_rmem[1]` / 2).
const FIRST_WINDOW: Bytes = Bytes::kib(64);
/// A shorter transfer has no best second.
const LEVEL_FOR: Duration = Duration::from_secs(2);

/// Chooses the chooser by what was asked for, and what the server's answer allows.
pub(super) fn choose(request: &GetRequest, opening: &Opening) -> Tuning {
    let rtt = handshake_rtt(&opening.connection).unwrap_or_default();
    let left = opening.remote.size.unwrap_or_default() - opening.committed.total();
    // All of it is on its way already.
    let rest = left - opening.first.len();
    match request.streams {
        Streams::Fixed(streams) if opening.shareable => Tuning::Fixed(streams.max(1)),
        Streams::Auto if request.leaves_pace_to(&opening.remote) => Tuning::Fixed(1),
        Streams::Auto if opening.shareable && rest > Bytes::ZERO => {
            let remembered = opening.known.as_ref().and_then(|known| known.still_holds(rtt));
            let tuner = StreamTuner::new(&Start { rtt, left, most: MOST_STREAMS, remembered });
            // Several in slow start at once would overflow what one that is paced does not.
            let wait = edge::is_for(request, &opening.remote, &opening.connection);
            Tuning::Auto { tuner: Box::new(tuner), rtt, wait }
        }
        Streams::Apt(AptSettings { n0, alpha, delta }) if opening.shareable => {
            let window = first_window(request, &opening.connection);
            let parameters = Parameters { n0, alpha, delta, window, rtt, most: MOST_STREAMS };
            Tuning::Apt(Box::new(Apt::new(parameters)))
        }
        _ => Tuning::Fixed(1),
    }
}

/// Returns what one stream of GridFTP-APT brings of the first chunk: W Delta / R.
pub(super) fn part_of_first_chunk(request: &GetRequest, apt: AptSettings, connection: &Connection) -> Bytes {
    let rtt = handshake_rtt(connection).unwrap_or_default();
    Rate::over(first_window(request, connection), rtt.get()).bdp(Rtt::new(apt.delta))
}

/// Returns what a stream can have in flight (W): its receive buffer, or the window before anything has come.
fn first_window(request: &GetRequest, connection: &Connection) -> Bytes {
    let kernels = || tcp_info::read(connection.socket()).ok().and_then(|tcp| tcp.rcv_wnd());
    request.client.recv_buffer.or_else(kernels).unwrap_or(FIRST_WINDOW)
}

/// Returns what a path holds whose server paces what it sends; `None` where the end came before that was certain.
pub(super) fn found_by_server(
    request: &GetRequest,
    remote: &Remote,
    facts: &Facts,
    received: Bytes,
) -> Option<Remembered> {
    // In slow start the best second is far more than the mean.
    let level = received >= facts.best.bytes_in(facts.flowing / 2);
    let alone = request.pace == Pace::Auto && remote.paces && facts.streams == 1 && request.limit.is_none();
    let found = Remembered { rtt: facts.rtt?, rate: facts.best, streams: 1 };
    (alone && level && facts.flowing >= LEVEL_FOR).then_some(found)
}

/// Describes what the path was found to be, to be remembered.
pub(super) fn known_path(
    remote: &Remote,
    shared: &Shared<'_>,
    found: Remembered,
    window: Bytes,
) -> Option<KnownPath> {
    let endpoint = Endpoint::of(remote.place.url())?;
    let path = KnownPath::new(endpoint, found, shared.pipeline.pool().usage().capacity(), window);
    Some(if remote.paces { path.paced() } else { path })
}
