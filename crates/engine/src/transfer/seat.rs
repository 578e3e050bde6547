//! A stream as the others see it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use longhaul_core::units::{Rate, Rtt};

use crate::cancel::Cancel;
use crate::threads::lock;

/// A stream's number, how it does, and the wish that it goes.
#[derive(Debug)]
pub(super) struct Seat {
    /// The stream's number, from 0.
    pub(super) id: usize,
    /// Bits per second.
    rate: AtomicU64,
    /// Nanoseconds.
    rtt: AtomicU64,
    connected: AtomicBool,
    answered: AtomicBool,
    to_go: AtomicBool,
    stop: Cancel,
    /// Ends what the stream waits for now, and no more than that.
    present: Mutex<Cancel>,
}

impl Seat {
    pub(super) fn new(id: usize, stop: &Cancel) -> Self {
        Self {
            id,
            rate: AtomicU64::new(0),
            rtt: AtomicU64::new(0),
            connected: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            to_go: AtomicBool::new(false),
            stop: stop.clone(),
            present: Mutex::new(stop.child()),
        }
    }

    /// Returns what the stream's connection brought over the last round trip.
    pub(super) fn rate(&self) -> Rate {
        Rate::bits_per_sec(self.rate.load(Ordering::Relaxed))
    }

    pub(super) fn set_rate(&self, rate: Rate) {
        self.rate.store(rate.as_bits_per_sec(), Ordering::Relaxed);
    }

    /// Returns the connection's RTT.
    pub(super) fn rtt(&self) -> Rtt {
        Rtt::new(Duration::from_nanos(self.rtt.load(Ordering::Relaxed)))
    }

    /// Notes a new connection, or that there is none.
    pub(super) fn connected(&self, rtt: Option<Rtt>) {
        self.connected.store(rtt.is_some(), Ordering::Relaxed);
        self.answered.store(false, Ordering::Relaxed);
        if let Some(rtt) = rtt {
            self.rtt.store(u64::try_from(rtt.get().as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        self.set_rate(Rate::default());
    }

    /// Returns whether it has a connection.
    pub(super) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Notes that the server has answered on it.
    pub(super) fn answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    /// Returns whether it has.
    pub(super) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// Wishes that the stream goes once it has what it asked for; one that has no connection need not get one.
    pub(super) fn send_away(&self) {
        self.to_go.store(true, Ordering::Relaxed);
        if !self.is_connected() {
            self.cancel().cancel();
        }
    }

    /// Takes that back.
    pub(super) fn keep(&self) {
        self.to_go.store(false, Ordering::Relaxed);
    }

    /// Returns whether the stream is to ask for nothing more.
    pub(super) fn is_to_go(&self) -> bool {
        self.to_go.load(Ordering::Relaxed)
    }

    /// Returns what ends the stream's present wait.
    pub(super) fn cancel(&self) -> Cancel {
        lock(&self.present).clone()
    }

    /// Makes a new one for a connection that is to be opened.
    pub(super) fn renew_cancel(&self) -> Cancel {
        let mut present = lock(&self.present);
        *present = self.stop.child();
        present.clone()
    }
}
