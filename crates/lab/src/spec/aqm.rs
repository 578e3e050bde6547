//! Active queue management: which algorithms there are.

use std::fmt;
use std::str::FromStr;

use super::ParseChoiceError;

/// How a queue chooses what to drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Aqm {
    /// Takes packets until it is full.
    #[default]
    DropTail,
}

impl FromStr for Aqm {
    type Err = ParseChoiceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "droptail" => Ok(Self::DropTail),
            _ => Err(ParseChoiceError { given: text.to_owned(), choices: "droptail" }),
        }
    }
}

impl fmt::Display for Aqm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::DropTail => "droptail",
        })
    }
}
