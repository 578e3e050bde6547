//! Errors as the protocol encodes them.

use serde_json::{Value, json};
use thiserror::Error;

/// The reason why a call failed. The text is shown by the client.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RpcError {
    /// The body is not JSON.
    #[error("Parse error: the body is not JSON: {0}")]
    NoJson(String),
    /// The body is JSON but not a request.
    #[error("Invalid Request: {0}")]
    NoRequest(&'static str),
    /// No method has this name.
    #[error("No such method: {0}")]
    NoMethod(String),
    /// A parameter is missing or not of the expected type.
    #[error("The parameter at {position} is wrong: {expected} expected.")]
    Parameter {
        /// The position of the parameter, from 0, without the token.
        position: usize,
        /// The expected type.
        expected: &'static str,
    },
    /// The value of an option is invalid.
    #[error("We encountered a problem while processing the option '--{name}': {expected} expected.")]
    Option {
        /// The name of the option.
        name: String,
        /// The expected value.
        expected: &'static str,
    },
    /// The token is missing or wrong.
    #[error("Unauthorized")]
    Unauthorized,
    /// No transfer has this gid.
    #[error("GID {0} is not found")]
    NoGid(super::Gid),
    /// The call is valid but cannot be executed at present.
    #[error("{0}")]
    Refused(String),
}

impl RpcError {
    /// Returns the error code of JSON-RPC 2.0 (section 5.1), or 1, aria2's code for all other
    /// errors.
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

    /// Returns the HTTP status with which aria2 answers the error.
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
