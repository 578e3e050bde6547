//! Access to parameters by their position.

use serde_json::Value;

use super::options::JobOptions;
use super::{Gid, Keys, RpcError};

/// The parameters of a call, without the token.
pub(super) struct Params<'a>(pub(super) &'a [Value]);

impl Params<'_> {
    fn get<'v, T>(
        &'v self,
        position: usize,
        expected: &'static str,
        read: impl FnOnce(&'v Value) -> Option<T>,
    ) -> Result<T, RpcError> {
        self.0.get(position).and_then(read).ok_or(RpcError::Parameter { position, expected })
    }

    pub(super) fn gid(&self, position: usize) -> Result<Gid, RpcError> {
        self.get(position, "a gid of 16 hexadecimal digits", |value| value.as_str()?.parse().ok())
    }

    pub(super) fn integer(&self, position: usize) -> Result<i64, RpcError> {
        self.get(position, "an integer", Value::as_i64)
    }

    pub(super) fn text(&self, position: usize) -> Result<&str, RpcError> {
        self.get(position, "a string", Value::as_str)
    }

    pub(super) fn texts(&self, position: usize) -> Result<Vec<String>, RpcError> {
        self.get(position, "an array of strings", |value| {
            value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
        })
    }

    pub(super) fn options(&self, position: usize) -> Result<JobOptions, RpcError> {
        match self.0.get(position) {
            None => Ok(JobOptions::default()),
            Some(Value::Object(options)) => JobOptions::parse(options),
            Some(_) => Err(RpcError::Parameter { position, expected: "an object with options" }),
        }
    }

    pub(super) fn keys(&self, position: usize) -> Result<Keys, RpcError> {
        if self.0.len() <= position { Ok(Keys::default()) } else { self.texts(position).map(Keys::of) }
    }

    /// Returns a position in the queue; `None` if the parameter is absent.
    pub(super) fn place(&self, position: usize) -> Result<Option<usize>, RpcError> {
        if self.0.len() <= position {
            return Ok(None);
        }
        let expected = "an integer that is not negative";
        self.get(position, expected, |value| usize::try_from(value.as_u64()?).ok()).map(Some)
    }
}
