//! The limits of a whole farm, shared out between its workers.
//!
//! No server divides a limit. Each worker announces in its heartbeat what it has of each limit and
//! what it needs, for each host; every worker computes the same shares from the same announcements,
//! and applies its own.
//!
//! ```text
//!  needs of all --max-min fair--> targets: a lower one is taken at once,
//!                                          a higher one as far as the limit is free of what all have announced
//! ```
//!
//! # Invariants
//!
//! - The announced shares add up to at most the limit, once every worker has read the last
//!   announcement of each other one and has announced its own: what is free is divided between
//!   those that want more of it.
//! - A worker that begins to receive from a host reads the announcements of that moment. It takes
//!   half of what is free, so that others that begin within the same beat find something, at most
//!   the limit divided by the number of workers, and of that never less than 100 kbit/s and one
//!   connection. Workers that begin at the same moment do not see each other's announcement; each
//!   may exceed the limit by that part of it, until its next beat.
//! - Of a rate, what a use does not need is given to others: each use gets what it needs, or as
//!   much as any other one. The connections to a host are divided equally, as the number that a
//!   file needs changes faster than beats follow.
//! - A live worker of another version, which announces no uses, has of the limit of all what it
//!   receives.
//! - The share of a worker that is lost is free when its lease expires.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use longhaul_core::tune::MAX_STREAMS;
use longhaul_core::units::{Bytes, Rate};
use longhaul_engine::input_file;
use longhaul_sys::atomic_file;
use serde::{Deserialize, Serialize};

use crate::error::FarmError;
use crate::plan::Plan;

/// The connections to each host of all workers together, unless set: what one `get` may open.
pub const DEFAULT_CONNECTIONS: u32 = MAX_STREAMS as u32;
/// The lowest limit of a rate, at which each of some hundred workers can send a packet a second.
pub const MIN_LIMIT: Rate = Rate::bits_per_sec(1_000_000);
/// The rate that a use gets before others have made room for it.
pub(crate) const FIRST_SHARE: Rate = Rate::bits_per_sec(100_000);
/// The file of the limits in the state of a plan.
const LIMITS: &str = "limits.json";
/// The largest file of limits: one of each of some thousand hosts.
const MAX_LIMITS: Bytes = Bytes::kib(256);
/// A use that has this part of its share is held back by it: the rest is lost between files.
const HELD: f64 = 0.85;
/// What a use needs that is not held back, in terms of its rate: more than 1 / [`HELD`], so that
/// the same rate does not look held back by the smaller share, and a larger one does.
const HEADROOM: f64 = 1.3;

/// The limits of all workers of a plan together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FarmLimits {
    /// The rate of all workers.
    pub rate: Option<Rate>,
    /// The rates at which all workers move from or to one host each.
    pub host_rates: BTreeMap<String, Rate>,
    /// The connections to each host.
    pub connections: u32,
}

impl Default for FarmLimits {
    fn default() -> Self {
        Self { rate: None, host_rates: BTreeMap::new(), connections: DEFAULT_CONNECTIONS }
    }
}

impl FarmLimits {
    /// Reads the limits of a plan.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn of(plan: &Plan) -> Result<Self, FarmError> {
        Self::read(&plan.state())
    }

    /// Sets the limits of a plan, which its workers read at their next beat.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn set(&self, plan: &Plan) -> Result<(), FarmError> {
        self.store(&plan.state())
    }

    /// Reads the limits in the state of a plan.
    pub(crate) fn read(state: &Path) -> Result<Self, FarmError> {
        let path = state.join(LIMITS);
        let text = match input_file::read_again(&path, MAX_LIMITS) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            text => text.map_err(FarmError::io("read", &path))?,
        };
        serde_json::from_slice(&text).map_err(|error| FarmError::Limits { path, why: error.to_string() })
    }

    /// Replaces the limits in the state of a plan.
    pub(crate) fn store(&self, state: &Path) -> Result<(), FarmError> {
        let path = state.join(LIMITS);
        let text = serde_json::to_vec(self).map_err(|error| FarmError::io("write", &path)(error.into()))?;
        atomic_file::replace(&path, &text, 0o644).map_err(FarmError::io("write", &path))
    }

    /// Returns what is left for workers that announce their uses, if others receive at a rate.
    pub(crate) fn without(mut self, unseen: Rate) -> Self {
        let left = |limit: Rate| limit.as_bits_per_sec().saturating_sub(unseen.as_bits_per_sec());
        self.rate = self.rate.map(|limit| Rate::bits_per_sec(left(limit)));
        self
    }

    /// Returns whether a rate is limited.
    pub fn limits_rate(&self) -> bool {
        self.rate.is_some() || !self.host_rates.is_empty()
    }
}

/// What a worker has of a limit and needs of it: bits per second, or connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Portion {
    /// Its share; `u64::MAX` without a limit, 0 before the first one.
    pub share: u64,
    /// What it needs of a rate; `None` for more than its share, and of connections.
    pub need: Option<u64>,
}

impl Portion {
    /// Returns the need of a use that received at a rate under this share.
    pub(crate) fn need_of(self, rate: Rate) -> Option<u64> {
        let is_held = rate.as_bits_per_sec() as f64 >= HELD * self.share as f64;
        (!is_held).then(|| rate.scaled(HEADROOM).as_bits_per_sec())
    }
}

/// What a worker uses of a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HostUse {
    /// The host.
    pub host: String,
    /// The rate.
    pub rate: Portion,
    /// The connections.
    pub connections: Portion,
}

/// Sets the next shares of `own` uses, as announced last, so that all workers compute the same;
/// `others` has a list for each other live worker.
pub fn share_out(limits: &FarmLimits, own: &mut [HostUse], others: &[Vec<HostUse>]) {
    let workers = others.len() as u64 + 1;
    let uses = || own.iter().chain(others.iter().flatten());
    let bits = |rate: &Rate| (*rate).max(MIN_LIMIT).as_bits_per_sec();
    let rates = Bounds {
        all: limits.rate.as_ref().map(bits),
        hosts: limits.host_rates.iter().map(|(host, rate)| (host.as_str(), bits(rate))).collect(),
        workers,
        least: FIRST_SHARE.as_bits_per_sec(),
    };
    let hosts: BTreeSet<&str> = uses().map(|of| of.host.as_str()).collect();
    let each = u64::from(limits.connections.max(1));
    let connections =
        Bounds { all: None, hosts: hosts.into_iter().map(|host| (host, each)).collect(), workers, least: 1 };
    let portions = |of: fn(&HostUse) -> Portion| -> Vec<Demand<'_>> {
        uses().map(|used| Demand { host: &used.host, portion: of(used) }).collect()
    };
    let rates = rates.next(&portions(|used| used.rate));
    let connections = connections.next(&portions(|used| used.connections));
    for (used, (rate, connections)) in own.iter_mut().zip(rates.into_iter().zip(connections)) {
        (used.rate.share, used.connections.share) = (rate, connections);
    }
}

/// The need of one use.
#[derive(Debug, Clone, Copy)]
struct Demand<'a> {
    host: &'a str,
    portion: Portion,
}

/// A limit of all uses, and one of those of each host.
#[derive(Debug, Clone)]
struct Bounds<'a> {
    all: Option<u64>,
    hosts: BTreeMap<&'a str, u64>,
    workers: u64,
    /// What each use needs at least.
    least: u64,
}

impl Bounds<'_> {
    /// Returns the next share of each use.
    fn next(&self, demands: &[Demand<'_>]) -> Vec<u64> {
        let mut targets = self.targets(demands);
        let mut all = self.all.map(FreePart::new);
        let mut hosts: BTreeMap<&str, FreePart> =
            self.hosts.iter().map(|(host, limit)| (*host, FreePart::new(*limit))).collect();
        for demand in demands {
            let parts = all.iter_mut().chain(hosts.get_mut(demand.host));
            parts.for_each(|part| part.take(demand.portion.share));
        }
        for (target, demand) in targets.iter_mut().zip(demands) {
            if demand.portion.share == 0 {
                let parts = all.iter().chain(hosts.get(demand.host));
                *target =
                    parts.map(|part| part.first_share(self.workers, self.least)).fold(*target, u64::min);
            }
            let parts = all.iter_mut().chain(hosts.get_mut(demand.host));
            parts.for_each(|part| part.want(target.saturating_sub(demand.portion.share)));
        }
        let next = |(demand, target): (&Demand<'_>, &u64)| {
            let share = demand.portion.share;
            let raise = target.saturating_sub(share);
            let parts = all.iter().chain(hosts.get(demand.host));
            let raised = share.min(*target) + parts.map(|part| part.scale(raise)).fold(raise, u64::min);
            let least = if share == 0 { self.least.min(*target) } else { 1 };
            raised.max(least).max(1)
        };
        demands.iter().zip(&targets).map(next).collect()
    }

    /// Returns the fair shares: what each use needs, and an equal part of the rest, so that a use
    /// may grow.
    fn targets(&self, demands: &[Demand<'_>]) -> Vec<u64> {
        let needs: Vec<(&str, u64)> = (demands.iter())
            .map(|demand| (demand.host, demand.portion.need.unwrap_or(u64::MAX).max(self.least)))
            .collect();
        let met = self.fill(&needs);
        let mut rest = self.clone();
        for ((host, _), met) in needs.iter().zip(&met) {
            for limit in rest.all.iter_mut().chain(rest.hosts.get_mut(*host)) {
                *limit = limit.saturating_sub(*met);
            }
        }
        let more = rest.fill(&needs.iter().map(|(host, _)| (*host, u64::MAX)).collect::<Vec<_>>());
        met.iter().zip(more).map(|(met, more)| met.saturating_add(more)).collect()
    }

    /// Returns the max-min fair part of each need.
    fn fill(&self, needs: &[(&str, u64)]) -> Vec<u64> {
        let mut of_hosts: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (host, need) in needs {
            of_hosts.entry(*host).or_default().push(*need);
        }
        let levels: BTreeMap<&str, u64> = (of_hosts.into_iter())
            .filter_map(|(host, needs)| Some((host, water_level(*self.hosts.get(host)?, needs))))
            .collect();
        let within: Vec<u64> = (needs.iter())
            .map(|(host, need)| levels.get(host).map_or(*need, |level| *need.min(level)))
            .collect();
        let level = self.all.map_or(u64::MAX, |limit| water_level(limit, within.clone()));
        within.into_iter().map(|need| need.min(level)).collect()
    }
}

/// Returns the largest level at which the needs, each cut off at it, add up to at most the limit.
fn water_level(limit: u64, mut needs: Vec<u64>) -> u64 {
    needs.sort_unstable();
    let (mut rest, mut left) = (limit, needs.len() as u64);
    for need in needs {
        let level = rest / left;
        if need > level {
            return level;
        }
        (rest, left) = (rest - need, left - 1);
    }
    u64::MAX
}

/// The part of the wanted raises that a limit has room for.
#[derive(Debug, Clone, Copy)]
struct FreePart {
    limit: u64,
    free: u128,
    wanted: u128,
}

impl FreePart {
    /// Creates that of a limit without uses.
    fn new(limit: u64) -> Self {
        Self { limit, free: u128::from(limit), wanted: 0 }
    }

    /// Counts what a use has.
    fn take(&mut self, share: u64) {
        self.free = self.free.saturating_sub(u128::from(share));
    }

    /// Counts what a use wants beyond that.
    fn want(&mut self, raise: u64) {
        self.wanted += u128::from(raise);
    }

    /// Returns what a use that begins may have.
    fn first_share(&self, workers: u64, least: u64) -> u64 {
        let half = u64::try_from(self.free.div_ceil(2)).unwrap_or(u64::MAX);
        half.max(least).min((self.limit / workers).max(1))
    }

    fn scale(self, raise: u64) -> u64 {
        if self.wanted <= self.free {
            return raise;
        }
        u64::try_from(u128::from(raise) * self.free / self.wanted).unwrap_or(raise)
    }
}

#[cfg(test)]
mod tests;
