//! Paces the connections of one upload: by each one's measurements, or by shares of the user's
//! rate.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use longhaul_core::pace::Pace;
use longhaul_core::units::Rate;
use longhaul_sys::send_options::set_max_pacing_rate;
use parking_lot::Mutex;

use crate::pacing::{PacingHandle, PacingStart, PacingThread};

/// The pacing of the connections of an upload.
pub(super) struct SharedPace<'a> {
    pacing: &'a PacingThread,
    pace: Pace,
    /// The congestion control after slow start.
    congestion: Option<&'a str>,
    /// The rate set by the user.
    rate: Option<SharedRate>,
}

impl<'a> SharedPace<'a> {
    pub(super) fn new(pacing: &'a PacingThread, pace: Pace, congestion: Option<&'a str>) -> Self {
        Self { pacing, pace, congestion, rate: SharedRate::of(pace) }
    }

    /// Paces a connection; a rate set by the user applies to the sum of all connections.
    pub(super) fn pace(&self, socket: &TcpStream) -> PacedConnection<'_> {
        let pacer = self.pacing.pace(socket, self.pace, self.congestion, PacingStart::default());
        let shared = pacer.and_then(|pacer| {
            let share = self.rate.as_ref().map(|rate| rate.share(socket)).transpose()?;
            Ok(PacedConnection { pacer, _share: share })
        });
        let paced = shared.inspect_err(|error| tracing::warn!("not paced: {error}")).unwrap_or_default();
        paced.pause();
        paced
    }
}

/// The pacing of a connection, until dropped.
#[derive(Default)]
pub(super) struct PacedConnection<'a> {
    /// The pacer that measures the path, if the user set no rate.
    pacer: Option<PacingHandle>,
    _share: Option<RateShare<'a>>,
}

impl PacedConnection<'_> {
    /// Pauses the pacer while nothing is sent.
    pub(super) fn pause(&self) {
        self.pacer.iter().for_each(PacingHandle::pause);
    }

    /// Resumes the pacer.
    pub(super) fn resume(&self) {
        self.pacer.iter().for_each(PacingHandle::resume);
    }
}

/// A rate shared evenly by the open connections: each that opens or closes changes the pace of all.
struct SharedRate {
    rate: Rate,
    sockets: Mutex<Vec<Arc<TcpStream>>>,
}

impl SharedRate {
    fn of(pace: Pace) -> Option<Self> {
        let Pace::Rate(rate) = pace else { return None };
        Some(Self { rate, sockets: Mutex::default() })
    }

    /// Assigns a connection its share until the result is dropped.
    fn share(&self, socket: &TcpStream) -> io::Result<RateShare<'_>> {
        let socket = Arc::new(socket.try_clone()?);
        // The new connection is paced last, so that the sum never exceeds the rate.
        self.sockets.lock().push(Arc::clone(&socket));
        let share = RateShare { rate: self, socket };
        self.divide()?;
        Ok(share)
    }

    fn divide(&self) -> io::Result<()> {
        let sockets = self.sockets.lock();
        let share = self.rate.as_bits_per_sec() / sockets.len().max(1) as u64;
        // The kernel's unit is bytes per second.
        let share = Rate::bits_per_sec(share.max(8));
        sockets.iter().try_for_each(|socket| set_max_pacing_rate(socket, share))
    }
}

/// A connection's share of a rate.
struct RateShare<'a> {
    rate: &'a SharedRate,
    socket: Arc<TcpStream>,
}

impl Drop for RateShare<'_> {
    fn drop(&mut self) {
        self.rate.sockets.lock().retain(|socket| !Arc::ptr_eq(socket, &self.socket));
        // If the kernel refuses, the others keep their pace.
        let _ = self.rate.divide();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use longhaul_sys::tcp_info;

    use super::*;

    #[test]
    fn connections_share_the_rate() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let sockets: Vec<_> = std::iter::repeat_with(connect).take(16).collect();
        let whole = Rate::bytes_per_sec(16_000_000);
        let shared = SharedRate::of(Pace::Rate(whole)).unwrap();
        let paces = |open: std::ops::Range<usize>| -> Vec<u64> {
            let info = sockets[open].iter().map(|socket| tcp_info::read(socket).unwrap());
            info.map(|info| info.tcpi_max_pacing_rate().unwrap()).collect()
        };
        let mut shares = Vec::new();
        for open in [1, 2, 4, 8, 16] {
            shares.extend(sockets[shares.len()..open].iter().map(|socket| shared.share(socket).unwrap()));
            assert_eq!(paces(0..open), vec![16_000_000 / open as u64; open]);
        }
        shares.truncate(4);
        assert_eq!(paces(0..4), [4_000_000; 4]);
    }
}
