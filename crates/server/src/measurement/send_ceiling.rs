//! The ceiling of `--measure=RATE`: one rate for all that the endpoint sends, divided equally among what is being sent.

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::units::Rate;
use longhaul_sys::send_options::set_max_pacing_rate;

/// A rate that streams and trains share. The kernel paces the streams, whose bytes this process never touches (sendfile).
#[derive(Debug)]
pub(super) struct SendCeiling {
    total: Rate,
    /// What one of those that send may have, in bits/s: read for each packet of a train, without the lock.
    share: AtomicU64,
    senders: Mutex<Senders>,
}

/// What is being sent.
#[derive(Debug, Default)]
struct Senders {
    next: u64,
    /// A stream's socket; none for a train, which paces itself.
    sockets: HashMap<u64, Option<OwnedFd>>,
}

/// A part of the ceiling; the others get it back when it is dropped.
#[derive(Debug)]
pub(super) struct CeilingShare {
    ceiling: Arc<SendCeiling>,
    number: u64,
}

impl SendCeiling {
    pub(super) fn new(total: Rate) -> Arc<Self> {
        let share = AtomicU64::new(total.as_bits_per_sec());
        Arc::new(Self { total, share, senders: Mutex::default() })
    }

    /// Returns the whole rate.
    pub(super) fn total(&self) -> Rate {
        self.total
    }

    /// Paces a stream within the ceiling while the share lives.
    ///
    /// # Errors
    /// What the kernel says of pacing this socket.
    pub(super) fn join_stream(self: &Arc<Self>, socket: BorrowedFd<'_>) -> io::Result<CeilingShare> {
        let share = self.join(Some(socket.try_clone_to_owned()?));
        // The kernel has been asked already; this asks once more for its answer.
        set_max_pacing_rate(socket, self.share())?;
        Ok(share)
    }

    /// Counts a train; it sends at [`share`](Self::share) at most.
    pub(super) fn join_train(self: &Arc<Self>) -> CeilingShare {
        self.join(None)
    }

    /// Returns the rate of one sender now.
    pub(super) fn share(&self) -> Rate {
        Rate::bits_per_sec(self.share.load(Ordering::Relaxed))
    }

    fn join(self: &Arc<Self>, socket: Option<OwnedFd>) -> CeilingShare {
        let mut senders = self.senders();
        senders.next += 1;
        let number = senders.next;
        senders.sockets.insert(number, socket);
        self.divide(&senders);
        CeilingShare { ceiling: Arc::clone(self), number }
    }

    fn divide(&self, senders: &Senders) {
        let share = self.total.as_bits_per_sec() / (senders.sockets.len() as u64).max(1);
        self.share.store(share.max(1), Ordering::Relaxed);
        for socket in senders.sockets.values().flatten() {
            // One that has been closed meanwhile sends nothing.
            let _ = set_max_pacing_rate(socket, self.share());
        }
    }

    fn senders(&self) -> MutexGuard<'_, Senders> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CeilingShare {
    fn drop(&mut self) {
        let mut senders = self.ceiling.senders();
        senders.sockets.remove(&self.number);
        self.ceiling.divide(&senders);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn ceiling_is_divided_among_those_that_send() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let [one, two] = [(); 2].map(|()| TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let ceiling = SendCeiling::new(Rate::bits_per_sec(90_000_000));
        let mbit = || ceiling.share().as_bits_per_sec() / 1_000_000;
        let first = ceiling.join_stream(one.as_fd()).unwrap();
        assert_eq!(mbit(), 90);
        let second = ceiling.join_stream(two.as_fd()).unwrap();
        let train = ceiling.join_train();
        assert_eq!(mbit(), 30);
        drop(first);
        drop(train);
        assert_eq!(mbit(), 90);
        drop(second);
        assert_eq!((mbit(), ceiling.total().as_bits_per_sec()), (90, 90_000_000));
    }

    #[test]
    fn more_senders_than_bits_still_have_a_rate() {
        let ceiling = SendCeiling::new(Rate::bits_per_sec(1));
        let _both = [ceiling.join_train(), ceiling.join_train()];
        assert_eq!(ceiling.share(), Rate::bits_per_sec(1));
    }
}
