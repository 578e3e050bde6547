//! Active queue management: the algorithms and their parameters.

use std::fmt;
use std::str::FromStr;

use longhaul_core::units::Rtt;

use super::ParsePathError;
use crate::model::RedParameters;
use crate::model::discipline::{CodelParameters, FqCodelParameters};

/// The algorithm that drops packets of a queue, written "droptail", "red", "codel" or "fq_codel",
/// or with parameters: "red:min_th=20,max_th=60,max_p=0.1,w_q=0.002,gentle=yes",
/// "codel:target=5ms,interval=100ms", "fq_codel:target=5ms,interval=100ms,flows=1024".
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Aqm {
    /// Drops packets only when the queue is full.
    #[default]
    DropTail,
    /// Drops at random, with a probability that rises with the average queue.
    Red(RedParameters),
    /// Drops while packets have queued for too long during an interval (RFC 8289).
    Codel(CodelParameters),
    /// A CoDel queue per flow, served round-robin (RFC 8290).
    FqCodel(FqCodelParameters),
}

impl Aqm {
    /// Returns whether the algorithm acts on departure, so that a packet's fate is unknown on
    /// arrival.
    pub(super) fn decides_on_leaving(&self) -> bool {
        matches!(self, Self::Codel(_) | Self::FqCodel(_))
    }

    /// Describes parameters that are impossible for a queue of `queue` packets of the largest size.
    pub(super) fn fault(&self, queue: f64) -> Option<String> {
        let Self::Red(RedParameters { min_th, max_th, max_p, w_q, gentle: _ }) = *self else { return None };
        let faults = [
            (min_th >= 0.0, format!("min_th of {min_th} is below 0")),
            (
                max_th > min_th && max_th.is_finite(),
                format!("max_th of {max_th} is not above min_th, which is {min_th}"),
            ),
            (
                max_th <= queue,
                format!("max_th of {max_th} packets is more than the queue holds, which is {queue}"),
            ),
            ((0.0..=1.0).contains(&max_p), format!("max_p of {max_p} is not between 0 and 1")),
            (w_q > 0.0 && w_q <= 1.0, format!("w_q of {w_q} is not above 0 and up to 1")),
        ];
        faults.into_iter().find(|(is_good, _)| !is_good).map(|(_, why)| why)
    }
}

impl FromStr for Aqm {
    type Err = ParsePathError;

    /// Parses parameters separated by commas or blanks.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let failed = |why: String| {
            ParsePathError(format!(
                "'{text}' is no way to choose what to drop: {why}; write droptail, red, codel or fq_codel, or one with some of its \
                 parameters, as in red:min_th=5,max_th=15,max_p=0.1,w_q=0.002,gentle=yes or codel:target=5ms,interval=100ms"
            ))
        };
        let mut words = text.split([':', ',', ' ']).filter(|word| !word.is_empty());
        let aqm = match words.next() {
            Some("droptail") => Self::DropTail,
            Some("red") => Self::Red(RedParameters::default()),
            Some("codel") => Self::Codel(CodelParameters::default()),
            Some("fq_codel") => Self::FqCodel(FqCodelParameters::default()),
            Some(word) => {
                return Err(failed(format!("'{word}' is not one of droptail, red, codel, fq_codel")));
            }
            None => return Err(failed("nothing stands there".to_owned())),
        };
        words.try_fold(aqm, Self::with).map_err(failed)
    }
}

impl Aqm {
    /// Sets a parameter from a word such as "max_p=0.1".
    fn with(mut self, word: &str) -> Result<Self, String> {
        let (own, has) = match self {
            Self::DropTail => return Err(format!("droptail has no parameters, and '{word}' is one")),
            Self::Red(_) => ("red", "min_th, max_th, max_p, w_q, gentle"),
            Self::Codel(_) => ("codel", "target, interval"),
            Self::FqCodel(_) => ("fq_codel", "target, interval, flows"),
        };
        let (name, value) = word.split_once('=').ok_or_else(|| format!("'{word}' has no '='"))?;
        let number = || value.parse::<f64>().map_err(|_| format!("{name}: '{value}' is not a number"));
        let time = || match value.parse::<Rtt>() {
            Ok(time) if !time.get().is_zero() => Ok(time.get()),
            Ok(_) => Err(format!("{name} of {value} is not above 0")),
            Err(error) => Err(format!("{name}: {error}")),
        };
        match (&mut self, name) {
            (Self::Red(red), "min_th") => red.min_th = number()?,
            (Self::Red(red), "max_th") => red.max_th = number()?,
            (Self::Red(red), "max_p") => red.max_p = number()?,
            (Self::Red(red), "w_q") => red.w_q = number()?,
            (Self::Red(red), "gentle") => match value {
                "yes" => red.gentle = true,
                "no" => red.gentle = false,
                _ => return Err(format!("gentle: '{value}' is neither yes nor no")),
            },
            (Self::Codel(codel) | Self::FqCodel(FqCodelParameters { codel, .. }), "target") => {
                codel.target = time()?;
            }
            (Self::Codel(codel) | Self::FqCodel(FqCodelParameters { codel, .. }), "interval") => {
                codel.interval = time()?;
            }
            (Self::FqCodel(fq_codel), "flows") => {
                let flows = value.parse().ok().filter(|flows| *flows > 0);
                fq_codel.flows =
                    flows.ok_or_else(|| format!("flows: '{value}' is not a number from 1 to 65535"))?;
            }
            _ => return Err(format!("{own} has no '{name}'; it has {has}")),
        }
        Ok(self)
    }
}

impl fmt::Display for Aqm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DropTail => f.pad("droptail"),
            Self::Codel(CodelParameters { target, interval }) => {
                write!(f, "codel:target={}s,interval={}s", target.as_secs_f64(), interval.as_secs_f64())
            }
            Self::FqCodel(FqCodelParameters { codel: CodelParameters { target, interval }, flows }) => {
                let (target, interval) = (target.as_secs_f64(), interval.as_secs_f64());
                write!(f, "fq_codel:target={target}s,interval={interval}s,flows={flows}")
            }
            Self::Red(RedParameters { min_th, max_th, max_p, w_q, gentle }) => {
                let gentle = if *gentle { "yes" } else { "no" };
                write!(f, "red:min_th={min_th},max_th={max_th},max_p={max_p},w_q={w_q},gentle={gentle}")
            }
        }
    }
}
