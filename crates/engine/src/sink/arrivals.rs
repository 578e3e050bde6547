//! What a connection brings, and what follows from that: whether it is alive, how fast it is, how far
//! its window should be open.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use longhaul_core::tune::receive_window::ReceiveWindowTuner;
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::sockopt;
use longhaul_sys::tcp_info;

/// A connection that brings less than this within the stall time is taken for dead.
pub const ALIVE: Bytes = Bytes::kib(1);
/// The shortest time over which a rate is measured; on short paths a round trip is that of a burst.
const SHORTEST: Duration = Duration::from_millis(20);

/// Accounts for one connection's bytes.
#[derive(Debug)]
pub struct Arrivals {
    /// What it has brought.
    pub total: Bytes,
    /// That of the empty path.
    pub rtt: Rtt,
    /// Over the last round trip.
    pub rate: Rate,
    /// What it is expected to be a round trip later.
    pub expected: Rate,
    /// The RTT as the data saw it last.
    data_rtt: Rtt,
    window: Mark,
    stall: Mark,
    /// What lay unread in the socket at the start of the window: it had arrived before.
    unread: Bytes,
    tuner: Option<ReceiveWindowTuner>,
    /// Whether somebody else has the window.
    released: bool,
}

/// Bytes since a moment.
#[derive(Debug)]
struct Mark {
    since: Instant,
    bytes: Bytes,
}

impl Mark {
    fn now(now: Instant) -> Self {
        Self { since: now, bytes: Bytes::ZERO }
    }

    fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}

impl Arrivals {
    /// Starts counting for a connection with this RTT; `hold` keeps its receive window near the BDP.
    pub fn new(rtt: Rtt, hold: bool, now: Instant) -> Self {
        Self {
            total: Bytes::ZERO,
            rtt,
            data_rtt: rtt,
            rate: Rate::default(),
            expected: Rate::default(),
            window: Mark::now(now),
            stall: Mark::now(now),
            unread: Bytes::ZERO,
            tuner: (hold && rtt.get() >= SHORTEST).then(ReceiveWindowTuner::default),
            released: false,
        }
    }

    /// Holds the window from the first look on, for this share of what several connections have in flight.
    #[must_use]
    pub fn of_several(mut self, share: Bytes) -> Self {
        if let Some(tuner) = &mut self.tuner {
            *tuner = ReceiveWindowTuner::of_several(share);
        }
        self
    }

    /// Accounts for bytes read from `socket`, and once a round trip looks at its window; `share` is what the connection
    /// may have of what several have in flight together.
    pub fn add(&mut self, bytes: Bytes, share: Bytes, socket: impl AsFd, now: Instant) {
        self.total += bytes;
        self.window.bytes += bytes;
        self.stall.bytes += bytes;
        let time = self.window.age(now);
        if time >= self.rtt.get().max(SHORTEST) {
            let unread = sockopt::unread(&socket).unwrap_or_default();
            let rate = Rate::over((self.window.bytes + unread) - self.unread, time);
            self.expected = rate.scaled(growth(self.rate, rate));
            self.rate = rate;
            self.unread = unread;
            self.window = Mark::now(now);
            if let Some(data_rtt) = tcp_info::read(&socket).ok().and_then(|info| info.rcv_rtt()) {
                self.data_rtt = data_rtt;
                self.hold(share, socket);
            }
        }
    }

    /// Returns the RTT as the data sees it, queues included.
    pub fn data_rtt(&self) -> Rtt {
        self.data_rtt.max(self.rtt)
    }

    fn hold(&mut self, share: Bytes, socket: impl AsFd) {
        let Some(tuner) = self.tuner.as_mut().filter(|_| !self.released) else { return };
        if let Some(clamp) = tuner.observe(self.rate, self.rtt, self.data_rtt, share) {
            // Set every time, because autotuning moves it. Where it cannot be set, the kernel's window stays.
            let _ = sockopt::set_window_clamp(socket, clamp);
        }
    }

    /// Leaves the window to somebody else.
    pub fn release(&mut self) {
        self.released = true;
    }

    /// Holds the window again.
    pub fn take_back(&mut self) {
        self.released = false;
    }

    /// Forgives time in which nobody read the socket.
    pub fn paused(&mut self, time: Duration) {
        self.stall.since += time;
    }

    /// Returns whether the last `patience` has brought next to nothing.
    pub fn stalled(&mut self, patience: Duration, now: Instant) -> bool {
        if self.stall.age(now) < patience {
            return false;
        }
        let dead = self.stall.bytes < ALIVE;
        self.stall = Mark::now(now);
        dead
    }
}

/// Returns by how much a rate grows in a round trip: at most twofold, which is slow start, and nothing is expected to fall.
fn growth(before: Rate, now: Rate) -> f64 {
    (now.as_bits_per_sec() as f64 / before.as_bits_per_sec().max(1) as f64).clamp(1.0, 2.0)
}
