//! The pace of a connection that begins with a large window, until that window has arrived.

use std::future::pending;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_core::pace::Pace;
use longhaul_core::tcp_info::TcpInfo;
use longhaul_core::tune::INITIAL_SEGMENTS;
use longhaul_core::units::Rate;
use longhaul_sys::send_options::{set_max_pacing_rate, unset_max_pacing_rate};
use longhaul_sys::tcp_info;
use tokio::time::sleep;

/// How often it is looked whether the window has arrived, at most and at least.
const LOOKS: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// Spreads the first window over a round trip. What follows is sent as the acknowledgements of that come.
#[derive(Debug, Clone)]
pub(crate) struct Greeting {
    rate: Rate,
    /// The window.
    segments: u64,
    rtt: Duration,
    /// What is in force once that has arrived; `None` where it has. With [`Pace::Auto`] a pacer is in charge already.
    then: Arc<Mutex<Option<Pace>>>,
}

impl Greeting {
    /// Paces a connection at its window over its RTT; `None` where the window is the kernel's own.
    pub(crate) fn begin(socket: impl AsFd) -> Option<Self> {
        let tcp = tcp_info::read(&socket).ok()?;
        let greeting = Self::over(&tcp)?;
        // Where the kernel refuses, the window goes as a burst.
        let _ = set_max_pacing_rate(&socket, greeting.rate);
        tracing::trace!(segments = greeting.segments, "a connection begins with a large window");
        Some(greeting)
    }

    fn over(tcp: &TcpInfo) -> Option<Self> {
        let segments = tcp.tcpi_snd_cwnd().filter(|&segments| segments > INITIAL_SEGMENTS)?;
        let rtt = tcp.min_rtt()?.get();
        let rate = Rate::over(tcp.cwnd()?, rtt);
        Some(Self { rate, segments, rtt, then: Arc::new(Mutex::new(Some(Pace::Off))) })
    }

    /// Returns the pace in force; `None` once it is over.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.then().map(|_| self.rate)
    }

    /// Returns what of a pace to begin with: no more than this one, where the rate is not for a pacer to find.
    pub(crate) fn bound(&self, pace: Pace) -> Pace {
        let mut then = self.then();
        if then.is_none() {
            return pace;
        }
        // A pacer's too: a reply of another pace may follow before the window has arrived.
        *then = Some(pace);
        match pace {
            Pace::Auto => pace,
            Pace::Off => Pace::Rate(self.rate),
            Pace::Rate(rate) => Pace::Rate(rate.min(self.rate)),
        }
    }

    /// Ends it as soon as the window has arrived; never returns.
    ///
    /// It is to run in the task that sends, so that nobody else sets the pace meanwhile.
    pub(crate) async fn lift(self, socket: impl AsFd) {
        while self.then().is_some() {
            sleep(self.rtt.clamp(LOOKS.0, LOOKS.1)).await;
            self.look(&socket);
        }
        drop(socket);
        pending().await
    }

    fn look(&self, socket: impl AsFd) {
        let mut then = self.then();
        let delivered = tcp_info::read(&socket).ok().and_then(|tcp| tcp.tcpi_delivered());
        if delivered.is_some_and(|delivered| delivered < self.segments) {
            return;
        }
        // Refused, the connection stays as slow as it is.
        let _ = match then.take() {
            Some(Pace::Rate(rate)) => set_max_pacing_rate(&socket, rate),
            Some(Pace::Off) => unset_max_pacing_rate(&socket),
            Some(Pace::Auto) | None => Ok(()),
        };
    }

    fn then(&self) -> MutexGuard<'_, Option<Pace>> {
        // Nothing panics while it is held.
        self.then.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use longhaul_core::units::Bytes;

    use super::*;
    use crate::pace::{PacePolicy, PacedConnection};

    const GREETED: Rate = Rate::bytes_per_sec(1 << 20);
    const LESS: Rate = Rate::bytes_per_sec(1 << 19);
    const MORE: Rate = Rate::bytes_per_sec(1 << 24);

    /// A connection that was greeted with a window of a few segments.
    struct Greeted {
        near: TcpStream,
        far: TcpStream,
        greeting: Greeting,
        paced: PacedConnection,
        policy: PacePolicy,
    }

    impl Greeted {
        fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (far, _) = listener.accept().unwrap();
            set_max_pacing_rate(&near, GREETED).unwrap();
            let then = Arc::new(Mutex::new(Some(Pace::Off)));
            let greeting = Greeting { rate: GREETED, segments: 4, rtt: Duration::from_millis(20), then };
            let paced = PacedConnection::greeted(Some(greeting.clone()));
            Self { near, far, greeting, paced, policy: PacePolicy::new(Pace::Auto, None, None) }
        }

        fn begin(&mut self, pace: Pace) {
            let client = self.near.peer_addr().unwrap().ip();
            self.paced.begin(&self.policy, &self.near, pace, client, None);
        }

        /// Sends so many segments, each of which arrives.
        fn send(&mut self, segments: u32) {
            for _ in 0..segments {
                self.near.write_all(&[7]).unwrap();
                self.far.read_exact(&mut [0]).unwrap();
                // The reply carries the acknowledgement.
                self.far.write_all(&[7]).unwrap();
                self.near.read_exact(&mut [0]).unwrap();
            }
            self.greeting.look(&self.near);
        }

        fn in_force(&self) -> Option<Rate> {
            let rate = tcp_info::read(&self.near).unwrap().tcpi_max_pacing_rate().unwrap();
            (rate != u64::MAX).then_some(Rate::bytes_per_sec(rate))
        }
    }

    #[test]
    fn no_pace_loosens_it_before_the_window_has_arrived() {
        for (asked, first, then) in [
            (Pace::Off, GREETED, None),
            (Pace::Rate(MORE), GREETED, Some(MORE)),
            (Pace::Rate(LESS), LESS, Some(LESS)),
        ] {
            let mut greeted = Greeted::new();
            greeted.begin(asked);
            greeted.send(1);
            assert_eq!(greeted.in_force(), Some(first), "{asked}");
            greeted.send(5);
            assert_eq!(greeted.in_force(), then, "{asked}");
            greeted.begin(Pace::Off);
            assert_eq!(greeted.in_force(), None, "nothing is bound any more");
        }
    }

    #[test]
    fn a_pacer_that_knows_nothing_starts_from_it() {
        let mut greeted = Greeted::new();
        greeted.begin(Pace::Auto);
        assert_eq!(greeted.in_force(), Some(GREETED));
        greeted.send(5);
        assert_eq!(greeted.greeting.rate(), None, "the window has arrived");
    }

    #[test]
    fn a_pacer_in_between_loosens_nothing() {
        for (asked, then) in [(Pace::Off, None), (Pace::Rate(MORE), Some(MORE))] {
            let mut greeted = Greeted::new();
            greeted.begin(Pace::Auto);
            greeted.begin(asked);
            assert_eq!(greeted.in_force(), Some(GREETED), "{asked}");
            greeted.send(6);
            assert_eq!(greeted.in_force(), then, "{asked}");
        }
    }

    #[test]
    fn it_ends_where_nothing_was_asked_for() {
        let mut greeted = Greeted::new();
        greeted.send(1);
        assert_eq!(greeted.in_force(), Some(GREETED));
        greeted.send(5);
        assert_eq!(greeted.in_force(), None);
    }

    #[test]
    fn only_a_large_window_is_greeted() {
        let tcp = |segments: u32| {
            let greeted = Greeted::new();
            let mut bytes = [0; longhaul_core::tcp_info::SIZE];
            let live = tcp_info::read(&greeted.near).unwrap();
            assert!(live.min_rtt().is_some());
            bytes[80..84].copy_from_slice(&segments.to_ne_bytes());
            bytes[16..20].copy_from_slice(&1000u32.to_ne_bytes());
            bytes[148..152].copy_from_slice(&100_000u32.to_ne_bytes());
            Greeting::over(&TcpInfo::from_bytes(&bytes)).map(|greeting| (greeting.segments, greeting.rate))
        };
        assert_eq!(tcp(10), None);
        assert_eq!(tcp(100), Some((100, Rate::over(Bytes::new(100_000), Duration::from_millis(100)))));
    }
}
