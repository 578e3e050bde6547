//! Paces a connection with an enlarged initial window until that window is delivered.

use std::future::pending;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::pace::Pace;
use longhaul_core::tcp_info::TcpInfo;
use longhaul_core::tune::INITIAL_SEGMENTS;
use longhaul_core::units::Rate;
use longhaul_sys::send_options::{set_max_pacing_rate, unset_max_pacing_rate};
use longhaul_sys::tcp_info;
use parking_lot::Mutex;
use tokio::time::sleep;

/// Bounds of the interval, one RTT, at which the delivery of the window is checked.
const CHECK_INTERVAL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// Spreads the first window over one RTT instead of a burst; the data after it is clocked by its
/// acknowledgements.
#[derive(Debug, Clone)]
pub(crate) struct InitialWindowPacing {
    rate: Rate,
    /// The size of the window.
    segments: u64,
    rtt: Duration,
    /// The pace to set once the window is delivered; `None` from then on. [`Pace::Auto`] sets none:
    /// a pacer is running.
    next_pace: Arc<Mutex<Option<Pace>>>,
}

impl InitialWindowPacing {
    /// Paces a connection at its window per RTT; `None` where the window is the kernel's default.
    pub(crate) fn start(socket: impl AsFd) -> Option<Self> {
        let tcp = tcp_info::read(&socket).ok()?;
        let pacing = Self::of(&tcp)?;
        // Where the kernel refuses, the window leaves as a burst.
        let _ = set_max_pacing_rate(&socket, pacing.rate);
        tracing::trace!(segments = pacing.segments, "a connection begins with a large window");
        Some(pacing)
    }

    fn of(tcp: &TcpInfo) -> Option<Self> {
        let segments = tcp.tcpi_snd_cwnd().filter(|&segments| segments > INITIAL_SEGMENTS)?;
        let rtt = tcp.min_rtt()?.get();
        let rate = Rate::over(tcp.cwnd()?, rtt);
        Some(Self { rate, segments, rtt, next_pace: Arc::new(Mutex::new(Some(Pace::Off))) })
    }

    /// Returns the rate in force; `None` once the window is delivered.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.next_pace.lock().map(|_| self.rate)
    }

    /// Stores `pace` to be set after the window, and returns the pace until then: no faster than
    /// the window's own, except that a pacer starts at once.
    pub(crate) fn limit(&self, pace: Pace) -> Pace {
        let mut next_pace = self.next_pace.lock();
        if next_pace.is_none() {
            return pace;
        }
        // `Auto` is stored too: a reply with another pace may follow before the window is
        // delivered.
        *next_pace = Some(pace);
        match pace {
            Pace::Auto => pace,
            Pace::Off => Pace::Rate(self.rate),
            Pace::Rate(rate) => Pace::Rate(rate.min(self.rate)),
        }
    }

    /// Sets the stored pace as soon as the window is delivered; never returns.
    ///
    /// Must run in the task that sends, so that no other code sets the pace at the same time.
    pub(crate) async fn end_when_delivered(self, socket: impl AsFd) {
        while self.next_pace.lock().is_some() {
            sleep(self.rtt.clamp(CHECK_INTERVAL.0, CHECK_INTERVAL.1)).await;
            self.check(&socket);
        }
        drop(socket);
        pending().await
    }

    fn check(&self, socket: impl AsFd) {
        let mut next_pace = self.next_pace.lock();
        let delivered = tcp_info::read(&socket).ok().and_then(|tcp| tcp.tcpi_delivered());
        if delivered.is_some_and(|delivered| delivered < self.segments) {
            return;
        }
        // Where the kernel refuses, the connection keeps the window's pace.
        let _ = match next_pace.take() {
            Some(Pace::Rate(rate)) => set_max_pacing_rate(&socket, rate),
            Some(Pace::Off) => unset_max_pacing_rate(&socket),
            Some(Pace::Auto) | None => Ok(()),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use longhaul_core::units::Bytes;

    use super::*;
    use crate::pacing::reply_pacing::{PacePolicy, PacedConnection};

    const WINDOW_RATE: Rate = Rate::bytes_per_sec(1 << 20);
    const LESS: Rate = Rate::bytes_per_sec(1 << 19);
    const MORE: Rate = Rate::bytes_per_sec(1 << 24);

    /// A connection with an initial window of four segments.
    struct TestConnection {
        near: TcpStream,
        far: TcpStream,
        pacing: InitialWindowPacing,
        paced: PacedConnection,
        policy: PacePolicy,
    }

    impl TestConnection {
        fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (far, _) = listener.accept().unwrap();
            set_max_pacing_rate(&near, WINDOW_RATE).unwrap();
            let next_pace = Arc::new(Mutex::new(Some(Pace::Off)));
            let pacing = InitialWindowPacing {
                rate: WINDOW_RATE,
                segments: 4,
                rtt: Duration::from_millis(20),
                next_pace,
            };
            let paced = PacedConnection::after_initial_window(Some(pacing.clone()));
            Self { near, far, pacing, paced, policy: PacePolicy::new(Pace::Auto, None, None) }
        }

        fn begin(&mut self, pace: Pace) {
            let client = self.near.peer_addr().unwrap().ip();
            self.paced.begin(&self.policy, &self.near, pace, client, None);
        }

        /// Sends `segments` segments; each is delivered.
        fn send(&mut self, segments: u32) {
            for _ in 0..segments {
                self.near.write_all(&[7]).unwrap();
                self.far.read_exact(&mut [0]).unwrap();
                // The echo carries the acknowledgement.
                self.far.write_all(&[7]).unwrap();
                self.near.read_exact(&mut [0]).unwrap();
            }
            self.pacing.check(&self.near);
        }

        fn pace_in_force(&self) -> Option<Rate> {
            let rate = tcp_info::read(&self.near).unwrap().tcpi_max_pacing_rate().unwrap();
            (rate != u64::MAX).then_some(Rate::bytes_per_sec(rate))
        }
    }

    #[test]
    fn reply_pace_is_capped_until_the_window_is_delivered() {
        for (asked, first, after) in [
            (vec![Pace::Off], WINDOW_RATE, None),
            (vec![Pace::Rate(MORE)], WINDOW_RATE, Some(MORE)),
            (vec![Pace::Rate(LESS)], LESS, Some(LESS)),
            // A pacer between two replies does not lift the cap.
            (vec![Pace::Auto, Pace::Off], WINDOW_RATE, None),
            (vec![Pace::Auto, Pace::Rate(MORE)], WINDOW_RATE, Some(MORE)),
            (vec![], WINDOW_RATE, None),
        ] {
            let mut connection = TestConnection::new();
            asked.iter().for_each(|pace| connection.begin(*pace));
            connection.send(1);
            assert_eq!(connection.pace_in_force(), Some(first), "{asked:?}");
            connection.send(5);
            assert_eq!(connection.pace_in_force(), after, "{asked:?}");
            connection.begin(Pace::Off);
            assert_eq!(connection.pace_in_force(), None, "the cap is gone");
        }
    }

    #[test]
    fn pacer_without_a_known_rate_starts_at_the_windows_rate_unless_that_is_the_default() {
        let mut connection = TestConnection::new();
        connection.begin(Pace::Auto);
        assert_eq!(connection.pace_in_force(), Some(WINDOW_RATE));
        connection.send(5);
        assert_eq!(connection.pacing.rate(), None, "the window has arrived");
        let tcp = |segments: u32| {
            let connection = TestConnection::new();
            let mut bytes = [0; longhaul_core::tcp_info::SIZE];
            let live = tcp_info::read(&connection.near).unwrap();
            assert!(live.min_rtt().is_some());
            bytes[80..84].copy_from_slice(&segments.to_ne_bytes());
            bytes[16..20].copy_from_slice(&1000u32.to_ne_bytes());
            bytes[148..152].copy_from_slice(&100_000u32.to_ne_bytes());
            InitialWindowPacing::of(&TcpInfo::from_bytes(&bytes)).map(|pacing| (pacing.segments, pacing.rate))
        };
        assert_eq!(tcp(10), None);
        assert_eq!(tcp(100), Some((100, Rate::over(Bytes::new(100_000), Duration::from_millis(100)))));
    }
}
