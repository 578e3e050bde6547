//! Pairs of hosts that share the path, each with its own RTT.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use longhaul_core::units::Rtt;

use super::ParsePathError;
use crate::model::held::Crossing;

/// Maximum of pairs: the number of reserved networks.
const MAX_PAIRS: usize = 64;

/// Pairs of a client and a server, written "10ms,50ms@first,30ms@second": RTTs, and which of two
/// bottlenecks they cross; by default one pair with the path's RTT.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pairs(pub Vec<Pair>);

/// A pair of a client and a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// RTT without queueing; half of it per direction.
    pub rtt: Rtt,
    /// The bottlenecks between the pair.
    pub crossing: Crossing,
}

impl Pairs {
    /// Returns the one-way delay of each pair; the path's own without pairs.
    pub(super) fn delays(&self, own: Duration) -> Vec<Duration> {
        if self.0.is_empty() { vec![own] } else { self.0.iter().map(|pair| pair.rtt.get() / 2).collect() }
    }
}

impl FromStr for Pairs {
    type Err = ParsePathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let failed = |why: String| {
            ParsePathError(format!(
                "'{text}' are no pairs of hosts: {why}; write their round trips, and which of two bottlenecks they cross, as in \
                 10ms,50ms@first"
            ))
        };
        let mut pairs = Vec::new();
        for word in text.split([',', ' ']).filter(|word| !word.is_empty() && *word != "none") {
            let (rtt, crossing) = match word.split_once('@') {
                None => (word, Crossing::All),
                Some((rtt, "first")) => (rtt, Crossing::First),
                Some((rtt, "second")) => (rtt, Crossing::Second),
                Some((_, other)) => return Err(failed(format!("'{other}' is neither first nor second"))),
            };
            let rtt: Rtt = rtt.parse().map_err(|error| failed(format!("{error}")))?;
            if rtt.get() > Duration::from_secs(60) {
                return Err(failed(format!("{rtt} is above one minute")));
            }
            pairs.push(Pair { rtt, crossing });
        }
        if pairs.len() > MAX_PAIRS {
            return Err(failed(format!("{} are above {MAX_PAIRS}", pairs.len())));
        }
        Ok(Self(pairs))
    }
}

impl fmt::Display for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let pair = |Pair { rtt, crossing }: &Pair| {
            let crossing = match crossing {
                Crossing::All => "",
                Crossing::First => "@first",
                Crossing::Second => "@second",
            };
            format!("{}s{crossing}", rtt.get().as_secs_f64())
        };
        f.write_str(&self.0.iter().map(pair).collect::<Vec<_>>().join(","))
    }
}
