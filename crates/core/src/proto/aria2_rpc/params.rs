//! Access to parameters by their position.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::options::Aria2Options;
use super::{Gid, Keys, RpcError};

/// The parameters of a call, without the token. Each method fails with [`RpcError::Parameter`]
/// where the parameter at `position` is missing or of another type.
#[derive(Debug, Clone, Copy)]
pub struct Params<'a>(&'a [Value]);

/// A target position of `aria2.changePosition`, relative to an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// Relative to the start of the queue (`POS_SET`).
    FromStart(i64),
    /// Relative to the current position of the transfer (`POS_CUR`).
    FromCurrent(i64),
    /// Relative to the end of the queue (`POS_END`).
    FromEnd(i64),
}

impl Move {
    /// Returns the new position, from 0, of the transfer at `current` in a queue of `length`.
    pub fn place(self, current: usize, length: usize) -> usize {
        let last = i64::try_from(length.saturating_sub(1)).unwrap_or(i64::MAX);
        let from = i64::try_from(current).unwrap_or(i64::MAX);
        let to = match self {
            Self::FromStart(by) => by,
            Self::FromCurrent(by) => from.saturating_add(by),
            Self::FromEnd(by) => last.saturating_add(by),
        };
        usize::try_from(to.clamp(0, last)).unwrap_or(0)
    }
}

impl<'a> Params<'a> {
    /// Takes the parameters of a call.
    pub fn new(values: &'a [Value]) -> Self {
        Self(values)
    }

    fn get<T>(
        &self,
        position: usize,
        expected: &'static str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<T, RpcError> {
        self.0.get(position).and_then(read).ok_or(RpcError::Parameter { position, expected })
    }

    /// Reads the identifier of a transfer.
    pub fn gid(&self, position: usize) -> Result<Gid, RpcError> {
        self.get(position, "a gid of 16 hexadecimal digits", |value| value.as_str()?.parse().ok())
    }

    fn integer(&self, position: usize) -> Result<i64, RpcError> {
        self.get(position, "an integer", Value::as_i64)
    }

    /// Reads a text.
    pub fn text(&self, position: usize) -> Result<&'a str, RpcError> {
        self.get(position, "a string", Value::as_str)
    }

    fn texts(&self, position: usize) -> Result<Vec<String>, RpcError> {
        self.get(position, "an array of strings", |value| {
            value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
        })
    }

    /// Reads the URLs of a file, at least one.
    pub fn uris(&self, position: usize) -> Result<Vec<String>, RpcError> {
        let uris = self.texts(position)?;
        let wrong = RpcError::Parameter { position, expected: "at least one URI" };
        if uris.is_empty() { Err(wrong) } else { Ok(uris) }
    }

    /// Reads a Base64 text.
    pub fn document(&self, position: usize) -> Result<Vec<u8>, RpcError> {
        let document = STANDARD.decode(self.text(position)?);
        document.map_err(|_| RpcError::Parameter { position, expected: "Base64" })
    }

    /// Reads options; there are none if the parameter is absent.
    pub fn options(&self, position: usize) -> Result<Aria2Options, RpcError> {
        match self.0.get(position) {
            None => Ok(Aria2Options::default()),
            Some(Value::Object(options)) => Aria2Options::parse(options),
            Some(_) => Err(RpcError::Parameter { position, expected: "an object with options" }),
        }
    }

    /// Reads the keys to report; all if the parameter is absent.
    pub fn keys(&self, position: usize) -> Result<Keys, RpcError> {
        if self.0.len() <= position { Ok(Keys::default()) } else { self.texts(position).map(Keys::of) }
    }

    /// Reads a position in the queue, from 0; `None` if the parameter is absent.
    pub fn place(&self, position: usize) -> Result<Option<usize>, RpcError> {
        if self.0.len() <= position {
            return Ok(None);
        }
        let expected = "an integer that is not negative";
        self.get(position, expected, |value| usize::try_from(value.as_u64()?).ok()).map(Some)
    }

    /// Reads an offset, a count, and the keys to report from the first three parameters. A negative
    /// offset counts backwards from the end.
    pub fn range(&self) -> Result<(i64, usize, Keys), RpcError> {
        let expected = "an integer that is not negative";
        let count = self.place(1)?.ok_or(RpcError::Parameter { position: 1, expected })?;
        Ok((self.integer(0)?, count, self.keys(2)?))
    }

    /// Reads a transfer and its target position from the first three parameters.
    pub fn movement(&self) -> Result<(Gid, Move), RpcError> {
        let (gid, by) = (self.gid(0)?, self.integer(1)?);
        let to = match self.text(2)? {
            "POS_SET" => Move::FromStart(by),
            "POS_CUR" => Move::FromCurrent(by),
            "POS_END" => Move::FromEnd(by),
            _ => return Err(RpcError::Parameter { position: 2, expected: "POS_SET, POS_CUR or POS_END" }),
        };
        Ok((gid, to))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GID: &str = "0000000000000007";

    /// Reads parameters of a method that may be wrong.
    type Read = fn(&Params<'_>) -> Result<(), RpcError>;

    #[test]
    fn parameters_are_read_by_their_position() {
        let params = json!([GID, 1, "POS_SET"]);
        let (params, gid) = (Params::new(params.as_array().unwrap()), GID.parse().unwrap());
        assert_eq!(params.movement(), Ok((gid, Move::FromStart(1))));
        assert_eq!((params.keys(3), params.options(3)), (Ok(Keys::default()), Ok(Aria2Options::default())));
        let added = json!([["http://a/", "http://b/"], {"out": "c"}, 2]);
        let added = Params::new(added.as_array().unwrap());
        assert_eq!((added.uris(0).unwrap().len(), added.place(2)), (2, Ok(Some(2))));
        assert_eq!(added.options(1).unwrap().place.out.as_deref(), Some("c"));
        let metalink = json!(["PG1ldGFsaW5rLz4="]);
        assert_eq!(Params::new(metalink.as_array().unwrap()).document(0).unwrap(), b"<metalink/>");
    }

    #[test]
    fn wrong_parameters_are_reported_with_their_position() {
        let add: Read = |params| {
            params.uris(0)?;
            params.options(1)?;
            params.place(2).map(drop)
        };
        let range: Read = |params| params.range().map(drop);
        let gid: Read = |params| params.gid(0).map(drop);
        for (read, params, place) in [
            (add, json!([]), 0),
            (add, json!([[]]), 0),
            (add, json!([["http://a/", 3]]), 0),
            (add, json!([["http://a/"], 3]), 1),
            (add, json!([["http://a/"], {}, -1]), 2),
            (|params| params.document(0).map(drop), json!(["%"]), 0),
            (gid, json!(["7"]), 0),
            (range, json!([0]), 1),
            (range, json!([0, -1]), 1),
            (range, json!(["0", 1]), 0),
            (|params| params.movement().map(drop), json!([GID, 0, "POS_UP"]), 2),
        ] {
            let error = read(&Params::new(params.as_array().unwrap())).unwrap_err();
            let is_named = matches!(error, RpcError::Parameter { position, .. } if position == place);
            assert!(is_named, "{params}: {error}");
        }
    }

    #[test]
    fn moves_end_inside_the_queue() {
        assert_eq!(Move::FromStart(0).place(3, 5), 0);
        assert_eq!(Move::FromCurrent(-1).place(3, 5), 2);
        assert_eq!(Move::FromCurrent(9).place(3, 5), 4);
        assert_eq!(Move::FromEnd(-1).place(3, 5), 3);
        assert_eq!(Move::FromEnd(i64::MIN).place(3, 5), 0);
        assert_eq!(Move::FromStart(i64::MAX).place(0, 0), 0);
    }
}
