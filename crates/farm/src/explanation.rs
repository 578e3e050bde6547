//! What holds a farm back, and what one more host would bring.
//!
//! Each unit's end says what limited it, how many hosts worked at that time, and how fast all of
//! them were. What a single host has for itself, one more host has as well; what all share is not
//! doubled. Which of both a path is cannot be seen from one number of hosts: then the answer is
//! unknown, unless the plan was worked on by fewer hosts before.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

use longhaul_core::advice::LimitedBy;
use longhaul_core::units::{Rate, seconds};
use serde::{Deserialize, Serialize};

/// The last units of a host from which its present limit is derived.
const MAX_RECENT: usize = 8;
/// The fewest units that show how fast a number of hosts is.
const MIN_UNITS: u32 = 3;
/// Of the rate of each host before, less than this part is no gain.
const MIN_GAIN: f64 = 0.1;
/// A host that has less than this part of the mean rate of the others is slow.
const SLOW: f64 = 0.5;
/// The name of the farm's own limit.
const FARM_LIMIT: &str = "farm-limit";

/// What held a worker back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum HeldBy {
    /// Its share of the farm's rate.
    FarmLimit,
    /// A limit of its transfers.
    Transfer(LimitedBy),
}

impl HeldBy {
    /// Returns the name as a sentence uses it.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::FarmLimit => "the farm's limit",
            Self::Transfer(limit) => limit.phrase(),
        }
    }
}

impl From<HeldBy> for String {
    fn from(held: HeldBy) -> Self {
        match held {
            HeldBy::FarmLimit => FARM_LIMIT.to_owned(),
            HeldBy::Transfer(limit) => limit.name().to_owned(),
        }
    }
}

impl From<String> for HeldBy {
    /// Reads a name; one of a later version is a limit that is not known.
    fn from(name: String) -> Self {
        if name == FARM_LIMIT {
            return Self::FarmLimit;
        }
        let known = LimitedBy::ALL.into_iter().find(|limit| limit.name() == name);
        Self::Transfer(known.unwrap_or_default())
    }
}

/// How a unit was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitReport {
    /// The host of its worker.
    pub host: String,
    /// The time that it took.
    #[serde(with = "seconds", rename = "seconds")]
    pub time: Duration,
    /// What held it back for longest.
    pub limited_by: HeldBy,
    /// The farm at its end; `None` if it had changed too shortly before to be measured.
    #[serde(flatten)]
    pub farm: Option<FarmRate>,
}

/// The rate of a number of hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarmRate {
    /// The hosts that worked on the plan.
    pub hosts: u32,
    /// The rate of all of them.
    #[serde(rename = "farm_bps")]
    pub rate: Rate,
}

/// What the reports of a plan's units show.
#[derive(Debug, Default)]
pub struct PlanEvidence {
    recent: HashMap<String, VecDeque<(HeldBy, Duration)>>,
    /// The units that ended while so many hosts worked, and the sum of the rates of all hosts, in
    /// bits per second.
    by_hosts: BTreeMap<u32, (u32, u64)>,
}

impl PlanEvidence {
    /// Adds a report.
    pub fn add(&mut self, report: UnitReport) {
        let is_farms = report.limited_by == HeldBy::FarmLimit;
        // Under the farm's limit, the rate says nothing of the number of hosts.
        if let Some(farm) = report.farm.filter(|farm| farm.hosts > 0 && !is_farms) {
            let (units, rates) = self.by_hosts.entry(farm.hosts).or_default();
            *units += 1;
            *rates = rates.saturating_add(farm.rate.as_bits_per_sec());
        }
        let recent = self.recent.entry(report.host).or_default();
        recent.truncate(MAX_RECENT - 1);
        recent.push_front((report.limited_by, report.time));
    }

    /// Returns what held a host back for longest in its last units.
    pub fn held(&self, host: &str) -> Option<HeldBy> {
        let mut times: BTreeMap<HeldBy, Duration> = BTreeMap::new();
        for (held, time) in self.recent.get(host)? {
            let sum = times.entry(*held).or_default();
            // A file of another program may say any time.
            *sum = sum.saturating_add(*time);
        }
        times.into_iter().max_by_key(|(_, time)| *time).map(|(held, _)| held)
    }

    /// Returns the mean rate of each number of hosts that was seen for long enough.
    pub fn rates(&self) -> BTreeMap<u32, Rate> {
        let seen = self.by_hosts.iter().filter(|(_, (units, _))| *units >= MIN_UNITS);
        seen.map(|(hosts, (units, rates))| (*hosts, Rate::bits_per_sec(rates / u64::from(*units)))).collect()
    }
}

/// A host that works on the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostState {
    /// Its name.
    pub host: String,
    /// The rate of its workers.
    pub rate: Rate,
    /// What held its last units back; `None` before the first one is done.
    pub limited_by: Option<HeldBy>,
}

/// What holds a farm back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// What holds more than half of the hosts back; `None` if that is not known, or differs.
    pub limited_by: Option<HeldBy>,
    /// A host that is far slower than the others.
    pub slow_host: Option<String>,
    /// What one more host would add to the rate; `None` if that is not known.
    #[serde(rename = "one_more_host_bps")]
    pub one_more_host: Option<Rate>,
    /// Why.
    pub why: String,
}

impl Explanation {
    /// Explains the farm of `hosts`; `rates` has those of numbers of hosts, and `is_capped` says
    /// that the connections to a server are all in use.
    pub fn of(hosts: &[HostState], rates: &BTreeMap<u32, Rate>, is_capped: bool) -> Self {
        let limited_by = most_common(hosts);
        let count = hosts.len() as u32;
        let (one_more_host, why) = match measured_gain(count, rates) {
            _ if count == 0 => (None, "no host works on the plan".to_owned()),
            _ if limited_by == Some(HeldBy::FarmLimit) => {
                (Some(Rate::default()), "all hosts share it; longhaul plan limit changes it".to_owned())
            }
            Some((gain, why)) => (Some(gain), why),
            None => expected_gain(hosts, limited_by, is_capped),
        };
        Self { limited_by, slow_host: slow_host(hosts), one_more_host, why }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limited_by {
            Some(held) => write!(f, "limited by {}; ", held.phrase())?,
            None => f.write_str("what limits the farm is not known; ")?,
        }
        match self.one_more_host {
            Some(gain) if gain == Rate::default() => f.write_str("one more host brings nothing")?,
            Some(gain) => write!(f, "one more host brings about {gain}")?,
            None => f.write_str("what one more host brings is not known")?,
        }
        write!(f, ": {}", self.why)?;
        let slow = self.slow_host.as_ref();
        slow.map_or(Ok(()), |host| write!(f, "; {host} is far slower than the others"))
    }
}

/// Returns what holds more than half of the hosts back.
fn most_common(hosts: &[HostState]) -> Option<HeldBy> {
    let mut counts: BTreeMap<HeldBy, usize> = BTreeMap::new();
    for held in hosts.iter().filter_map(|host| host.limited_by) {
        *counts.entry(held).or_default() += 1;
    }
    let (held, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    (2 * count > hosts.len()).then_some(held)
}

/// Returns what each host has added since there were fewer, if that was seen.
fn measured_gain(count: u32, rates: &BTreeMap<u32, Rate>) -> Option<(Rate, String)> {
    let now = rates.get(&count)?;
    let (fewer, before) = rates.range(1..count).next_back()?;
    let added = now.as_bits_per_sec().saturating_sub(before.as_bits_per_sec()) / u64::from(count - fewer);
    let each = before.as_bits_per_sec() / u64::from(*fewer);
    let gain = if added as f64 >= MIN_GAIN * each as f64 { added } else { 0 };
    let hosts = if *fewer == 1 { "host" } else { "hosts" };
    let why = format!("{fewer} {hosts} had {before} in this plan, and {count} have {now}");
    Some((Rate::bits_per_sec(gain), why))
}

/// Returns the gain that follows from what the limit belongs to.
fn expected_gain(hosts: &[HostState], held: Option<HeldBy>, is_capped: bool) -> (Option<Rate>, String) {
    use LimitedBy::{
        Application, Cpu, Disk, Limit, Loss, Path, Policer, ReceiveWindow, SendBuffer, Server,
        ServerSendBuffer, SlowStart, Unknown,
    };
    let nothing = Some(Rate::default());
    let each = || Some(Rate::bits_per_sec(sum_of_rates(hosts) / hosts.len().max(1) as u64));
    let Some(HeldBy::Transfer(limit)) = held else {
        let known: BTreeSet<HeldBy> = hosts.iter().filter_map(|host| host.limited_by).collect();
        let why = match known.len() {
            0 => "no unit of these hosts is done",
            1 => "too few of these hosts have done a unit",
            _ => "hosts are limited by different things",
        };
        return (None, why.to_owned());
    };
    let (gain, why) = match limit {
        ReceiveWindow | ServerSendBuffer | Loss | SlowStart if is_capped => {
            (nothing, "it limits each connection, and the farm may open no more to the server")
        }
        ReceiveWindow | ServerSendBuffer | Loss | SlowStart | SendBuffer => {
            (each(), "it limits each connection, and another host opens its own")
        }
        Cpu => (each(), "each host has its own"),
        Limit => (each(), "each worker has its own --limit"),
        Server => (nothing, "all hosts share it"),
        Disk if hosts.len() > 1 => (nothing, "all hosts write to one file system"),
        Disk => (None, "one host does not show whether the file system is slow, or its own way to it"),
        Path | Policer => (None, "the hosts may share the part of the path that limits"),
        Application | Unknown => (None, "its cause is not known"),
    };
    (gain, why.to_owned())
}

fn sum_of_rates(hosts: &[HostState]) -> u64 {
    hosts.iter().fold(Rate::default(), |sum, host| sum + host.rate).as_bits_per_sec()
}

/// Returns the slowest host, if the others are far faster.
fn slow_host(hosts: &[HostState]) -> Option<String> {
    let slowest = hosts.iter().min_by_key(|host| host.rate)?;
    let others = hosts.len().checked_sub(1).filter(|others| *others > 0)?;
    let mean = (sum_of_rates(hosts) - slowest.rate.as_bits_per_sec()) as f64 / others as f64;
    ((slowest.rate.as_bits_per_sec() as f64) < SLOW * mean).then(|| slowest.host.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBIT: fn(u64) -> Rate = |rate| Rate::bits_per_sec(rate * 1_000_000);

    fn host(number: usize, rate: u64, held: Option<HeldBy>) -> HostState {
        HostState { host: format!("n{number}"), rate: MBIT(rate), limited_by: held }
    }

    #[test]
    fn gain_of_one_more_host_follows_from_the_limit_or_from_what_was_measured() {
        use HeldBy::{FarmLimit, Transfer};
        use LimitedBy::{Cpu, Disk, Limit, Path, ReceiveWindow, Server, Unknown};
        type Row<'a> =
            (&'a [(u64, Option<HeldBy>)], &'a [(u32, u64)], bool, Option<HeldBy>, Option<u64>, &'a str);
        let by = |limit| Some(Transfer(limit));
        let rows: &[Row<'_>] = &[
            (&[], &[], false, None, None, "no host works"),
            (&[(100, None)], &[], false, None, None, "no unit"),
            (&[(100, by(Cpu)), (300, by(Cpu))], &[], false, by(Cpu), Some(200), "its own"),
            (&[(100, by(Limit)); 2], &[], false, by(Limit), Some(100), "--limit"),
            (&[(100, by(ReceiveWindow)); 2], &[], false, by(ReceiveWindow), Some(100), "opens its own"),
            (&[(100, by(ReceiveWindow)); 2], &[], true, by(ReceiveWindow), Some(0), "no more"),
            (&[(100, by(Server)); 4], &[], false, by(Server), Some(0), "share"),
            (&[(100, by(Disk)); 4], &[], false, by(Disk), Some(0), "one file system"),
            (&[(100, by(Disk))], &[], false, by(Disk), None, "does not show"),
            (&[(100, by(Path)); 2], &[], false, by(Path), None, "may share"),
            (&[(100, by(Unknown)); 2], &[], false, by(Unknown), None, "not known"),
            (
                &[(100, Some(FarmLimit)); 2],
                &[(1, 100), (2, 200)],
                false,
                Some(FarmLimit),
                Some(0),
                "plan limit",
            ),
            (&[(90, by(Path)), (90, by(Cpu)), (90, by(Disk))], &[], false, None, None, "different things"),
            // Half of the hosts are not the farm.
            (&[(90, by(Disk)), (90, by(Server))], &[], false, None, None, "different things"),
            (&[(90, by(Disk)), (90, None)], &[], false, None, None, "too few"),
            (&[(90, by(Disk)), (90, by(Disk)), (90, None)], &[], false, by(Disk), Some(0), "one file system"),
            // What was measured with fewer hosts precedes what is expected.
            (
                &[(100, by(Path)); 2],
                &[(1, 100), (2, 190)],
                false,
                by(Path),
                Some(90),
                "1 host had 100 Mbit/s",
            ),
            (&[(50, by(Path)); 4], &[(2, 195), (4, 200)], false, by(Path), Some(0), "2 hosts had 195 Mbit/s"),
            (&[(100, by(Server)); 2], &[(1, 100), (2, 190)], false, by(Server), Some(90), "and 2 have 190"),
            (&[(100, by(Server)); 2], &[(2, 190), (4, 200)], false, by(Server), Some(0), "share"),
        ];
        for (hosts, rates, is_capped, limited_by, gain, why) in rows {
            let hosts: Vec<_> =
                hosts.iter().enumerate().map(|(n, (rate, held))| host(n, *rate, *held)).collect();
            let rates = rates.iter().map(|(hosts, rate)| (*hosts, MBIT(*rate))).collect();
            let found = Explanation::of(&hosts, &rates, *is_capped);
            assert_eq!((found.limited_by, found.one_more_host), (*limited_by, gain.map(MBIT)), "{hosts:?}");
            assert!(found.why.contains(why), "{why}: {found}");
        }
    }

    #[test]
    fn explanation_is_a_sentence_that_names_a_slow_host() {
        let held = Some(HeldBy::Transfer(LimitedBy::Server));
        let hosts = [host(1, 100, held), host(2, 20, held), host(3, 100, held)];
        let found = Explanation::of(&hosts, &BTreeMap::new(), false);
        assert_eq!(
            found.to_string(),
            "limited by the server; one more host brings nothing: all hosts share it; n2 is far slower than the others"
        );
    }

    #[test]
    fn last_units_of_a_host_count_and_names_of_later_versions_are_read() {
        let mut evidence = PlanEvidence::default();
        let report = |held: &str, time, hosts, rate| UnitReport {
            host: "h".into(),
            time: Duration::from_secs(time),
            limited_by: held.to_owned().into(),
            farm: Some(FarmRate { hosts, rate: MBIT(rate) }),
        };
        (0..20).for_each(|_| evidence.add(report("disk", 9, 1, 100)));
        (0..7).for_each(|_| evidence.add(report("farm-limit", 2, 2, 10)));
        let early = UnitReport { farm: None, ..report("path", 3, 4, 400) };
        for _ in 0..3 {
            // The last two say nothing of the number of hosts.
            for other in [report("path", 1, 2, 150), early.clone(), report("path", 1, 0, 10)] {
                evidence.add(UnitReport { host: "other".into(), ..other });
            }
        }
        assert_eq!(evidence.held("h"), Some(HeldBy::FarmLimit), "14 s of 23 s in the last 8 units");
        evidence.add(report("eclipse", 100, 3, 150));
        assert_eq!(evidence.held("h"), Some(HeldBy::Transfer(LimitedBy::Unknown)));
        assert_eq!(evidence.rates(), BTreeMap::from([(1, MBIT(100)), (2, MBIT(150))]));
        let line = serde_json::to_string(&report("path", 3, 4, 400)).unwrap();
        assert_eq!(line, r#"{"host":"h","seconds":3.0,"limited_by":"path","hosts":4,"farm_bps":400000000}"#);
        let line = serde_json::to_string(&early).unwrap();
        assert_eq!(line, r#"{"host":"h","seconds":3.0,"limited_by":"path"}"#);
        assert_eq!(serde_json::from_str::<UnitReport>(&line).unwrap(), early);
        (0..2).for_each(|_| evidence.add(report("disk", u64::MAX, 1, 100)));
        assert_eq!(evidence.held("h"), Some(HeldBy::Transfer(LimitedBy::Disk)), "not a sum of times");
    }
}
