//! What a worker uses of one host: its shares of the farm's limits, which change while files are
//! received.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::cancel::Cancel;
use longhaul_engine::job::StreamCap;
use longhaul_engine::rate_limit::RateLimit;
use parking_lot::{Condvar, Mutex};

use crate::budget::{self, FIRST_SHARE, FarmLimits, HostUse};

/// The interval at which a waiting file looks whether it was cancelled.
const WAIT_TICK: Duration = Duration::from_millis(100);

/// The most hosts that a worker announces, as its heartbeat must be readable. The uses that are
/// left out count for it alone.
const MAX_USES: usize = 200;
/// The longest time for which files wait for the first announcement of a host.
const MAX_ANNOUNCEMENT: Duration = Duration::from_secs(30);

/// The hosts that a worker uses.
pub(crate) struct HostGates {
    /// The limit of the worker's user.
    limit: Option<RateLimit>,
    /// The interval of beats.
    interval: Duration,
    hosts: Mutex<BTreeMap<String, Arc<HostGate>>>,
}

impl HostGates {
    pub(crate) fn new(limit: Option<RateLimit>, interval: Duration) -> Self {
        Self { limit, interval, hosts: Mutex::default() }
    }

    /// Announces a file of a host; returns whether the host is new.
    pub(crate) fn enter(&self, host: &str) -> (Arc<HostGate>, bool) {
        let mut hosts = self.hosts.lock();
        let is_new = !hosts.contains_key(host);
        let new = || Arc::new(HostGate::new(host, self.limit.as_ref(), self.interval / 2));
        let gate = hosts.entry(host.to_owned()).or_insert_with(new);
        gate.enter();
        (Arc::clone(gate), is_new)
    }

    /// Sets the next shares; returns what to announce, of too many hosts those in use now and the
    /// largest shares. A beat leaves out what was not used since the last one.
    pub(crate) fn share_out(
        &self,
        limits: &FarmLimits,
        others: &[Vec<HostUse>],
        is_beat: bool,
    ) -> Vec<HostUse> {
        let mut hosts = self.hosts.lock();
        if is_beat {
            hosts.retain(|_, gate| gate.take_use());
        }
        let mut own: Vec<HostUse> = hosts.values().map(|gate| gate.announced()).collect();
        budget::share_out(limits, &mut own, others);
        let mut uses: Vec<(bool, HostUse)> = (hosts.values().zip(own))
            .map(|(gate, next)| (gate.is_used(), gate.set_shares(next, is_beat)))
            .collect();
        uses.sort_by_key(|(is_used, next)| Reverse((*is_used, next.rate.share, next.connections.share)));
        uses.truncate(MAX_USES);
        uses.into_iter().map(|(_, next)| next).collect()
    }

    /// Applies the rates that were announced.
    pub(crate) fn apply(&self) {
        self.hosts.lock().values().for_each(|gate| gate.apply());
    }
}

/// The files that a worker receives from one host.
pub(crate) struct HostGate {
    limit: RateLimit,
    received: AtomicU64,
    state: Mutex<GateState>,
    changed: Condvar,
}

struct GateState {
    /// As announced last.
    announced: HostUse,
    /// Whether the first announcement was made, or has failed.
    is_announced: bool,
    /// The connections that files may have together.
    connections: u64,
    files: Vec<RunningFile>,
    waiting: usize,
    next_file: u64,
    /// Whether a file was there since the last beat.
    was_used: bool,
    /// The shortest time that shows what the host's files need: a beat may follow their begin at
    /// once.
    least_time: Duration,
    /// The bytes at the last beat that measured them.
    measured: (Instant, u64),
}

struct RunningFile {
    number: u64,
    cap: StreamCap,
    /// The most connections that it can use.
    wants: usize,
    streams: usize,
    /// Whether it is about to end, and keeps its connections until then: each that were closed
    /// would have to grow again.
    is_ending: bool,
}

impl HostGate {
    /// Creates that of a host without a share yet, within the limit of this worker's user; needs
    /// are measured over `least_time` or more.
    pub(crate) fn new(host: &str, user: Option<&RateLimit>, least_time: Duration) -> Self {
        let least = Some(FIRST_SHARE);
        let limit = RateLimit::share_of_farm(user, least);
        let state = GateState {
            announced: HostUse { host: host.to_owned(), ..HostUse::default() },
            is_announced: false,
            connections: 1,
            files: Vec::new(),
            waiting: 0,
            next_file: 0,
            was_used: true,
            least_time,
            measured: (Instant::now(), 0),
        };
        Self { limit, received: AtomicU64::new(0), state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Announces a file, so that the gate is kept until [`admit`](Self::admit).
    pub(crate) fn enter(&self) {
        let mut state = self.state.lock();
        (state.waiting, state.was_used) = (state.waiting + 1, true);
    }

    /// Lets files in: the host's first announcement was made, or has failed.
    pub(crate) fn set_announced(&self) {
        self.state.lock().is_announced = true;
        self.changed.notify_all();
    }

    /// Waits until the host is announced and a connection is free for a file that has entered, and
    /// could use so many; a cancelled one does not wait.
    pub(crate) fn admit(self: &Arc<Self>, wants: usize, cancel: &Cancel) -> Admission {
        let began = Instant::now();
        let is_early = |state: &GateState| !state.is_announced && began.elapsed() < MAX_ANNOUNCEMENT;
        let mut state = self.state.lock();
        while (is_early(&state) || state.files.len() as u64 >= state.connections) && !cancel.is_cancelled() {
            self.changed.wait_for(&mut state, WAIT_TICK);
        }
        let (number, cap) = (state.next_file, StreamCap::new(1));
        let file = RunningFile { number, cap: cap.clone(), wants, streams: 1, is_ending: false };
        state.files.push(file);
        (state.waiting, state.next_file) = (state.waiting - 1, number + 1);
        state.divide();
        Admission { gate: Arc::clone(self), number, cap }
    }

    /// Returns whether files were received or waited for since the last call.
    pub(crate) fn take_use(&self) -> bool {
        let mut state = self.state.lock();
        let is_used = state.is_used();
        std::mem::replace(&mut state.was_used, is_used)
    }

    /// Returns whether files are received or waited for.
    fn is_used(&self) -> bool {
        self.state.lock().is_used()
    }

    /// Returns what was announced last.
    pub(crate) fn announced(&self) -> HostUse {
        self.state.lock().announced.clone()
    }

    /// Sets the next shares, a higher rate only with [`apply`](Self::apply); returns what to
    /// announce, at a beat with a new need.
    pub(crate) fn set_shares(&self, next: HostUse, is_beat: bool) -> HostUse {
        let mut state = self.state.lock();
        let (before, used) = (state.announced.clone(), state.used());
        state.connections = next.connections.share;
        state.divide();
        self.changed.notify_all();
        state.announced = next;
        let elapsed = state.measured.0.elapsed();
        if is_beat && before.rate.share > 0 && elapsed >= state.least_time {
            let received = self.received.load(Ordering::Relaxed);
            let rate = Rate::over(Bytes::new(received - state.measured.1), elapsed);
            state.measured = (Instant::now(), received);
            state.announced.rate.need = before.rate.need_of(rate);
        }
        // Surplus connections are free for others when they are closed.
        let connections = &mut state.announced.connections.share;
        *connections = used.max(*connections);
        let next = state.announced.clone();
        drop(state);
        self.set_rate(next.rate.share.min(before.rate.share.max(FIRST_SHARE.as_bits_per_sec())));
        next
    }

    /// Applies the rate that was announced.
    pub(crate) fn apply(&self) {
        let share = self.state.lock().announced.rate.share;
        if share > 0 {
            self.set_rate(share);
        }
    }

    fn set_rate(&self, share: u64) {
        self.limit.set((share < u64::MAX).then(|| Rate::bits_per_sec(share)));
    }
}

impl GateState {
    /// Returns whether files are received or waited for.
    fn is_used(&self) -> bool {
        self.waiting > 0 || !self.files.is_empty()
    }

    /// Returns the connections in use.
    fn used(&self) -> u64 {
        self.files.iter().map(|file| file.streams.max(1) as u64).sum()
    }

    /// Divides the connections between the files that can use several.
    fn divide(&self) {
        let divides = |file: &&RunningFile| file.wants > 1 && !file.is_ending;
        let several = self.files.iter().filter(divides).count() as u64;
        // Each file has one at least.
        let most = (self.connections + 1).saturating_sub(self.files.len() as u64).max(1);
        let mut kept = 0;
        for file in self.files.iter().filter(|file| !divides(file)) {
            let own = (file.streams as u64).clamp(1, most);
            kept += own;
            if file.is_ending {
                file.cap.set(usize::try_from(own).unwrap_or(usize::MAX));
            }
        }
        let each = self.connections.saturating_sub(kept).checked_div(several).unwrap_or(1).max(1);
        let each = usize::try_from(each).unwrap_or(usize::MAX);
        self.files.iter().filter(divides).for_each(|file| file.cap.set(each.min(file.wants)));
    }
}

/// A file that may be received; ends with it.
pub struct Admission {
    gate: Arc<HostGate>,
    number: u64,
    cap: StreamCap,
}

impl Admission {
    /// Returns the limit of the rate, which all files from the host share.
    pub fn limit(&self) -> &RateLimit {
        &self.gate.limit
    }

    /// Returns the cap of the file's connections.
    pub fn stream_cap(&self) -> &StreamCap {
        &self.cap
    }

    /// Counts bytes that were received.
    pub(crate) fn count(&self, bytes: Bytes) {
        self.gate.received.fetch_add(bytes.get(), Ordering::Relaxed);
    }

    /// Keeps the connections of a file that is about to end; another one may begin over the others.
    pub(crate) fn end_soon(&self) {
        let mut state = self.gate.state.lock();
        let file = state.files.iter_mut().find(|file| file.number == self.number && !file.is_ending);
        if let Some(file) = file {
            file.is_ending = true;
            state.divide();
        }
    }

    /// Records the number of open connections.
    pub fn note_streams(&self, streams: usize) {
        let mut state = self.gate.state.lock();
        let Some(file) = state.files.iter_mut().find(|file| file.number == self.number) else { return };
        file.streams = streams;
        if file.is_ending {
            state.divide();
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        state.files.retain(|file| file.number != self.number);
        state.divide();
        self.gate.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Portion;

    fn shares(rate: u64, connections: u64) -> HostUse {
        HostUse {
            host: "h".into(),
            rate: Portion { share: rate, need: None },
            connections: Portion { share: connections, need: None },
        }
    }

    #[test]
    fn files_divide_the_connections_and_wait_for_one() {
        let (gate, cancel) = (Arc::new(HostGate::new("h", None, Duration::ZERO)), Cancel::new());
        let admit = |wants| {
            gate.enter();
            gate.admit(wants, &cancel)
        };
        std::thread::scope(|threads| {
            let early = threads.spawn(|| admit(128).stream_cap().get());
            while gate.state.lock().waiting == 0 {
                std::thread::yield_now();
            }
            gate.set_shares(shares(u64::MAX, 9), false);
            gate.set_announced();
            assert_eq!(early.join().unwrap(), 9, "it has waited for the first share");
        });
        gate.set_shares(shares(u64::MAX, 9), true);
        let (large, small) = (admit(128), admit(1));
        assert_eq!((large.stream_cap().get(), small.stream_cap().get()), (8, 1));
        let second = admit(128);
        assert_eq!([&large, &small, &second].map(|file| file.stream_cap().get()), [4, 1, 4]);
        large.note_streams(3);
        large.end_soon();
        drop(second);
        let second = admit(128);
        assert_eq!([&large, &small, &second].map(|file| file.stream_cap().get()), [3, 1, 5], "one ends soon");
        // What is still open is announced.
        large.note_streams(8);
        assert_eq!(gate.set_shares(shares(u64::MAX, 3), true).connections.share, 10);
        assert_eq!(
            (large.stream_cap().get(), second.stream_cap().get()),
            (1, 1),
            "a lower share holds for it too"
        );
        std::thread::scope(|threads| {
            let third = threads.spawn(|| admit(1).stream_cap().get());
            while gate.state.lock().waiting == 0 {
                std::thread::yield_now();
            }
            assert!(!third.is_finished());
            drop(small);
            assert_eq!(third.join().unwrap(), 1);
        });
        cancel.cancel();
        drop((admit(1), admit(1)));
        assert!(gate.take_use());
        drop((large, second));
        assert!(gate.take_use() && !gate.take_use(), "unused for a beat");
    }

    #[test]
    fn higher_rate_is_applied_after_its_announcement_and_need_follows_the_rate() {
        let gate = Arc::new(HostGate::new("h", None, Duration::ZERO));
        gate.enter();
        gate.set_announced();
        let file = gate.admit(1, &Cancel::new());
        let first = gate.set_shares(shares(8_000_000, 1), false);
        assert_eq!(first.rate, Portion { share: 8_000_000, need: None });
        let in_force = || format!("{:?}", file.limit());
        assert!(in_force().contains(&format!("Rate({})", FIRST_SHARE.as_bits_per_sec())), "{}", in_force());
        gate.apply();
        assert!(in_force().contains("Rate(8000000)"), "{}", in_force());
        // Nothing was received.
        assert_eq!(
            gate.set_shares(shares(1_000_000, 1), true).rate,
            Portion { share: 1_000_000, need: Some(0) }
        );
        assert!(in_force().contains("Rate(1000000)"), "a lower one holds at once");
        gate.set_shares(shares(u64::MAX, 1), true);
        gate.apply();
        assert!(!file.limit().is_farms(), "nothing limits it");
        // A beat that follows the begin at once has measured nothing.
        let young = HostGate::new("h", None, Duration::from_secs(3600));
        young.enter();
        young.set_shares(shares(8_000_000, 1), false);
        assert_eq!(young.set_shares(shares(8_000_000, 1), true).rate.need, None);
    }

    #[test]
    fn of_many_hosts_those_in_use_are_announced() {
        let (gates, cancel) = (HostGates::new(None, Duration::ZERO), Cancel::new());
        let admit = |host: &str| {
            let (gate, _) = gates.enter(host);
            gate.set_announced();
            gate.admit(1, &cancel)
        };
        for number in 0..2 * MAX_USES {
            drop(admit(&format!("h{number}")));
        }
        let file = admit("last");
        let uses = gates.share_out(&FarmLimits::default(), &[], true);
        assert_eq!((uses.len(), uses[0].host.as_str()), (MAX_USES, "last"));
        drop(file);
    }
}
