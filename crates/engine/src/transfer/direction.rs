//! The two directions of a round, and what differs between them.

use std::time::Duration;

use super::connection::StreamConnection;
use super::intake::SLOW_FLUSH;
use crate::sink::pipeline::{Inlet, SegmentFiller};

/// A direction of bytes between this host and its peers.
pub(crate) trait Direction: Sized + 'static {
    const RECEIVES: bool;
    /// Where the streams of a round pass their bytes.
    type Inlet<'a>: Sync;
    /// What a connection holds of the bytes that it moves.
    type Held<'a>: Send;

    /// Returns what a new connection holds.
    fn hold<'a>(inlet: &'a Self::Inlet<'a>) -> Self::Held<'a>;

    /// Passes on what a connection holds.
    fn flush(_connection: &mut StreamConnection<'_, Self>) {}

    /// Adapts the inlet to this number of connections.
    fn plan_for(_inlet: &Self::Inlet<'_>, _connections: usize) {}

    /// Returns the CPU time of the threads behind the inlet.
    fn cpu_time(_inlet: &Self::Inlet<'_>) -> Duration {
        Duration::ZERO
    }
}

/// From sources into the pipeline of a file.
pub(crate) enum Receiving {}

/// From a file to a peer.
pub(crate) enum Sending {}

impl Direction for Receiving {
    const RECEIVES: bool = true;
    type Inlet<'a> = Inlet<'a>;
    type Held<'a> = SegmentFiller<'a>;

    fn hold<'a>(inlet: &'a Inlet<'a>) -> SegmentFiller<'a> {
        inlet.clone().filler(SLOW_FLUSH)
    }

    fn flush(connection: &mut StreamConnection<'_>) {
        connection.flush();
    }

    fn plan_for(inlet: &Inlet<'_>, connections: usize) {
        inlet.pipeline().pool().serve(connections);
    }

    fn cpu_time(inlet: &Inlet<'_>) -> Duration {
        inlet.pipeline().cpu_time()
    }
}

impl Direction for Sending {
    const RECEIVES: bool = false;
    type Inlet<'a> = ();
    type Held<'a> = ();

    fn hold((): &()) {}
}
