//! Burst loss as netem's `gemodel` writes it.

use std::fmt;
use std::str::FromStr;

use super::ParsePathError;
use crate::model::GilbertElliott;

/// Gilbert-Elliott loss, written "0.1%,10%" or "0.001,0.1,1,0" for p, r, 1-h and 1-k; none by
/// default.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct GeModel(pub(super) Option<GilbertElliott>);

impl GeModel {
    /// Returns whether the model never loses a packet.
    pub fn is_none(&self) -> bool {
        self.mean_loss() == 0.0
    }

    /// Returns the long-term loss rate.
    pub fn mean_loss(&self) -> f64 {
        self.0.map_or(0.0, |parameters| parameters.mean_loss())
    }
}

impl FromStr for GeModel {
    type Err = ParsePathError;

    /// Parses probabilities separated by commas or blanks. Missing ones default to 1-p, 1 and 0, as
    /// in tc-netem(8).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let failed = |why: String| {
            ParsePathError(format!(
                "'{text}' is no loss model: {why}; write p,r[,1-h[,1-k]] as netem's gemodel, each a share (0.001) or percent (0.1%), \
                 as in 0.1%,10%, or none"
            ))
        };
        if text.trim() == "none" {
            return Ok(Self(None));
        }
        let words = text.split([',', ' ']).filter(|word| !word.is_empty());
        let values: Vec<f64> = words.map(probability).collect::<Result<_, _>>().map_err(failed)?;
        let (to_bad, rest) = values.split_first().ok_or_else(|| failed("nothing stands there".into()))?;
        if rest.len() > 3 {
            return Err(failed(format!("{} probabilities are more than four", values.len())));
        }
        let or = |index: usize, default: f64| rest.get(index).copied().unwrap_or(default);
        Ok(Self(Some(GilbertElliott {
            to_bad: *to_bad,
            to_good: or(0, 1.0 - to_bad),
            loss_in_bad: or(1, 1.0),
            loss_in_good: or(2, 0.0),
        })))
    }
}

fn probability(word: &str) -> Result<f64, String> {
    let (number, unit) = word.strip_suffix('%').map_or((word, 1.0), |number| (number, 100.0));
    let value = number.parse::<f64>().map_err(|_| format!("'{word}' is not a number"))? / unit;
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(format!("{word} is not between 0 and 1")) }
}

impl fmt::Display for GeModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("none"),
            Some(GilbertElliott { to_bad, to_good, loss_in_bad, loss_in_good }) => {
                write!(f, "{to_bad},{to_good},{loss_in_bad},{loss_in_good}")
            }
        }
    }
}
