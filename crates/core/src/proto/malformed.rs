//! The error of parsers and encoders whose callers treat all violations alike.

use thiserror::Error;

/// The reason why text or bytes violate their format, or cannot be expressed in it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Malformed(String);

impl Malformed {
    /// Creates the error; `why` names the violation.
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}
