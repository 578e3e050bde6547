//! Errors as the protocol encodes them.

use serde_json::{Value, json};
use thiserror::Error;

/// Why a call fails. The text is what the client shows.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RpcError {
    /// The body is no JSON.
    #[error("Parse error: the body is no JSON: {0}")]
    NoJson(String),
    /// The body is JSON, but no request.
    #[error("Invalid Request: {0}")]
    NoRequest(&'static str),
    /// No method has this name.
    #[error("No such method: {0}")]
    NoMethod(String),
    /// A parameter is missing, or is not what the method takes.
    #[error("The parameter at {position} is wrong: {expected} expected.")]
    Parameter {
        /// Its place, counted from 0, the token not included.
        position: usize,
        /// What the method takes there.
        expected: &'static str,
    },
    /// An option has a value that it cannot have.
    #[error("We encountered a problem while processing the option '--{name}': {expected} expected.")]
    Option {
        /// Its name.
        name: &'static str,
        /// What it takes.
        expected: &'static str,
    },
    /// The token is missing or another one.
    #[error("Unauthorized")]
    Unauthorized,
    /// No transfer has this gid.
    #[error("GID {0} is not found")]
    NoGid(super::Gid),
    /// The call is right, and cannot be carried out now.
    #[error("{0}")]
    Refused(String),
}

impl RpcError {
    /// Returns the code: JSON-RPC 2.0's (section 5.1), or 1, aria2's for all others.
    pub fn code(&self) -> i64 {
        match self {
            Self::NoJson(_) => -32_700,
            Self::NoRequest(_) => -32_600,
            Self::NoMethod(_) => -32_601,
            Self::Parameter { .. }
            | Self::Option { .. }
            | Self::Unauthorized
            | Self::NoGid(_)
            | Self::Refused(_) => 1,
        }
    }

    /// Returns the HTTP status that aria2 answers such an error with.
    pub fn http_status(&self) -> u16 {
        match self {
            Self::NoMethod(_) => 404,
            Self::NoJson(_) => 500,
            _ => 400,
        }
    }

    /// Returns the error object of a response.
    pub fn to_json(&self) -> Value {
        json!({"code": self.code(), "message": self.to_string()})
    }
}
