//! Moves the right edge of a socket's receive window as [`ReceiveWindowPacer`] says.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use longhaul_core::plan::LARGEST_WINDOW;
use longhaul_core::tune::receive_window_pace::{ReceiveWindowPacer, ReceiverObservation, WindowStep};
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::{sockopt, tcp_info};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What a reader does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Read so many bytes at most, then say how many with [`PacedWindow::read`].
    Read(usize),
    /// Nothing has come: look again.
    Wait,
    /// The window is the kernel's again. Read as ever, and ask no more.
    Off,
}

/// The window of one connection, which reads nothing but through this.
#[derive(Debug)]
pub struct PacedWindow {
    pacer: ReceiveWindowPacer,
    rtt: Rtt,
    buffer: Option<Bytes>,
    start: Instant,
    read: Bytes,
    /// The window that a byte of the socket's buffer gives; the kernel counts memory, not bytes.
    ratio: f64,
    holds: bool,
    carry_at: Instant,
    carried: usize,
}

/// How long to wait for data before looking again.
const LOOK: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(2));
/// The most that is read at once: so much later than it could does the edge move.
const READ: usize = 256 << 10;
/// How often something is sent that carries the window, before it is held and then.
const CARRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(4));
/// A request's head may be so long on every server.
const CARRIED: usize = 6_000;
/// The window's clamp is out of the way: the buffer alone decides. A clamp would open in steps, as data comes.
const NO_CLAMP: Bytes = Bytes::mib(768);
/// No other share is believed: somebody else has set the clamp.
const RATIOS: (f64, f64) = (0.2, 1.0);

impl PacedWindow {
    /// Starts on a connection of this RTT, never faster than `limit`; `buffer` is what the socket has afterwards, where not
    /// left to the kernel.
    pub fn new(rtt: Rtt, limit: Option<Rate>, buffer: Option<Bytes>, now: Instant) -> Self {
        Self {
            buffer,
            pacer: ReceiveWindowPacer::new(limit),
            rtt,
            start: now,
            read: Bytes::ZERO,
            ratio: 1.0,
            holds: false,
            carry_at: now,
            carried: 0,
        }
    }

    /// Waits a moment for data and moves the edge; says what to do with `room` for more.
    pub fn turn(&mut self, socket: impl AsFd, room: usize) -> Turn {
        let mut sockets = [PollFd::new(&socket, PollFlags::IN)];
        let look = Timespec::try_from(if self.holds { LOOK.1 } else { LOOK.0 }).ok();
        let ready = matches!(poll(&mut sockets, look.as_ref()), Ok(1..));
        let Some(seen) = self.see(&socket) else { return Turn::Off };
        let unread = seen.unread.as_usize();
        let step = self.pacer.observe(&seen, self.start.elapsed());
        tracing::trace!(target: "longhaul::pacing", ?step, ?seen, ratio = self.ratio, pacer = ?self.pacer);
        match step {
            WindowStep::Off => {
                // A buffer that was set is autotuned no more: it must be large enough for good.
                let buffer = self.buffer.or(self.holds.then_some(LARGEST_WINDOW));
                if let Some(buffer) = buffer {
                    // Refused, the window stays small and the transfer slow, but it goes on.
                    let _ = sockopt::set_recv_buffer(&socket, buffer);
                }
                Turn::Off
            }
            // The end of the stream, or an error, is read too.
            WindowStep::Listen if ready => Turn::Read(room),
            WindowStep::Listen => Turn::Wait,
            WindowStep::Hold(window) => {
                self.learn(&socket);
                self.holds = true;
                let most = unread.min(READ).min(room);
                // Before the bytes are read: the room that they leave must not move the edge.
                self.set(&socket, window - Bytes::new(most as u64));
                match most {
                    0 if ready && unread == 0 => Turn::Read(room),
                    0 => Turn::Wait,
                    most => Turn::Read(most),
                }
            }
        }
    }

    /// Accounts for bytes read.
    pub fn read(&mut self, bytes: usize) {
        self.read += Bytes::new(bytes as u64);
    }

    /// Says whether something should be sent now that carries the window.
    ///
    /// The kernel announces a window that opens only with data, or when it has doubled: too late, and as a burst.
    pub fn carries(&mut self, now: Instant) -> bool {
        let due = now >= self.carry_at && self.carried < CARRIED;
        if due {
            self.carried += 1;
            self.carry_at = now + if self.holds { CARRY.1 } else { CARRY.0 };
        }
        due
    }

    fn see(&self, socket: impl AsFd) -> Option<ReceiverObservation> {
        let tcp = tcp_info::read(&socket).ok()?;
        Some(ReceiverObservation {
            read: self.read,
            unread: sockopt::unread(&socket).ok()?,
            offered: tcp.rcv_wnd()?,
            rtt: self.rtt,
            data_rtt: tcp.rcv_rtt().unwrap_or(self.rtt),
            out_of_order: tcp.tcpi_rcv_ooopack()?,
        })
    }

    /// Asks the kernel for the share, where that has changed.
    fn learn(&mut self, socket: impl AsFd) {
        let share = sockopt::window_share(socket, NO_CLAMP).ok().flatten();
        if let Some(share) = share.filter(|share| (RATIOS.0..=RATIOS.1).contains(share)) {
            self.ratio = share;
        }
    }

    fn set(&self, socket: impl AsFd, window: Bytes) {
        // The kernel doubles what it is given.
        let buffer = Bytes::new((window.max(Bytes::kib(64)).get() as f64 / self.ratio / 2.0) as u64);
        // Refused, the window stays as it is, and the transfer goes on.
        let _ = sockopt::set_recv_buffer(&socket, buffer);
        let _ = sockopt::set_window_clamp(&socket, NO_CLAMP);
    }
}
