//! The methods and their checked parameters.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::options::JobOptions;
use super::params::Params;
use super::{Gid, Keys, RpcError};

/// Parses the parameters of a method, without the token.
type Parser = fn(&Params<'_>) -> Result<Method, RpcError>;

/// The methods and their parsers. The forced variants are equal to the plain ones, because neither a pause nor a cancel
/// waits for a server.
const PARSERS: [(&str, Parser); 31] = [
    ("aria2.addUri", add_uri),
    ("aria2.addMetalink", add_metalink),
    ("aria2.remove", |params| params.gid(0).map(Method::Remove)),
    ("aria2.forceRemove", |params| params.gid(0).map(Method::Remove)),
    ("aria2.pause", |params| params.gid(0).map(Method::Pause)),
    ("aria2.pauseAll", |_| Ok(Method::PauseAll)),
    ("aria2.forcePause", |params| params.gid(0).map(Method::Pause)),
    ("aria2.forcePauseAll", |_| Ok(Method::PauseAll)),
    ("aria2.unpause", |params| params.gid(0).map(Method::Unpause)),
    ("aria2.unpauseAll", |_| Ok(Method::UnpauseAll)),
    ("aria2.tellStatus", |params| Ok(Method::TellStatus { gid: params.gid(0)?, keys: params.keys(1)? })),
    ("aria2.getUris", |params| params.gid(0).map(Method::GetUris)),
    ("aria2.getFiles", |params| params.gid(0).map(Method::GetFiles)),
    ("aria2.getPeers", |params| params.gid(0).map(Method::GetPeers)),
    ("aria2.getServers", |params| params.gid(0).map(Method::GetServers)),
    ("aria2.tellActive", |params| params.keys(0).map(Method::TellActive)),
    ("aria2.tellWaiting", |params| {
        range(params).map(|(offset, count, keys)| Method::TellWaiting { offset, count, keys })
    }),
    ("aria2.tellStopped", |params| {
        range(params).map(|(offset, count, keys)| Method::TellStopped { offset, count, keys })
    }),
    ("aria2.changePosition", change_position),
    ("aria2.getOption", |params| params.gid(0).map(Method::GetOption)),
    ("aria2.changeOption", |params| {
        Ok(Method::ChangeOption { gid: params.gid(0)?, options: params.options(1)? })
    }),
    ("aria2.getGlobalOption", |_| Ok(Method::GetGlobalOption)),
    ("aria2.changeGlobalOption", |params| params.options(0).map(Method::ChangeGlobalOption)),
    ("aria2.getGlobalStat", |_| Ok(Method::GetGlobalStat)),
    ("aria2.purgeDownloadResult", |_| Ok(Method::PurgeDownloadResult)),
    ("aria2.removeDownloadResult", |params| params.gid(0).map(Method::RemoveDownloadResult)),
    ("aria2.getVersion", |_| Ok(Method::GetVersion)),
    ("aria2.getSessionInfo", |_| Ok(Method::GetSessionInfo)),
    ("aria2.saveSession", |_| Ok(Method::SaveSession)),
    ("system.listMethods", |_| Ok(Method::ListMethods)),
    ("system.listNotifications", |_| Ok(Method::ListNotifications)),
];

/// Returns the names of all methods: those that [`Method::parse`] accepts, and `system.multicall`, whose calls are parsed
/// one by one.
pub fn methods() -> impl Iterator<Item = &'static str> {
    PARSERS.into_iter().map(|(name, _)| name).chain(["system.multicall"])
}

/// The notifications sent over a WebSocket.
pub const NOTIFICATIONS: &[&str] = &[
    "aria2.onDownloadStart",
    "aria2.onDownloadPause",
    "aria2.onDownloadStop",
    "aria2.onDownloadComplete",
    "aria2.onDownloadError",
];

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

/// A method with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub enum Method {
    /// Adds one file with its mirrors.
    AddUri {
        /// The URLs of the file, at least one.
        uris: Vec<String>,
        /// The options of the transfer.
        options: JobOptions,
        /// The position in the queue, from 0; `None` for its end.
        place: Option<usize>,
    },
    /// Adds the files of a Metalink.
    AddMetalink {
        /// The document.
        document: Vec<u8>,
        /// The options of the transfers.
        options: JobOptions,
        /// The position in the queue, from 0; `None` for its end.
        place: Option<usize>,
    },
    /// Cancels a transfer.
    Remove(Gid),
    /// Pauses a transfer.
    Pause(Gid),
    /// Pauses all transfers.
    PauseAll,
    /// Resumes a transfer.
    Unpause(Gid),
    /// Resumes all transfers.
    UnpauseAll,
    /// Reports the status of a transfer.
    TellStatus {
        /// The identifier of the transfer.
        gid: Gid,
        /// The keys to report.
        keys: Keys,
    },
    /// Reports the running transfers.
    TellActive(Keys),
    /// Reports `count` waiting and paused transfers from `offset`; a negative offset counts backwards from the end.
    TellWaiting {
        /// The first transfer.
        offset: i64,
        /// The largest number of transfers.
        count: usize,
        /// The keys to report.
        keys: Keys,
    },
    /// Reports `count` ended transfers from `offset`; a negative offset counts backwards from the end.
    TellStopped {
        /// The first transfer.
        offset: i64,
        /// The largest number of transfers.
        count: usize,
        /// The keys to report.
        keys: Keys,
    },
    /// Lists a transfer's URLs.
    GetUris(Gid),
    /// Lists a transfer's files.
    GetFiles(Gid),
    /// Lists the peers of a torrent; always empty.
    GetPeers(Gid),
    /// Lists the servers in use by a transfer.
    GetServers(Gid),
    /// Moves a transfer within the queue.
    ChangePosition {
        /// The identifier of the transfer.
        gid: Gid,
        /// The new position.
        to: Move,
    },
    /// Returns a transfer's options.
    GetOption(Gid),
    /// Changes a transfer's options.
    ChangeOption {
        /// The identifier of the transfer.
        gid: Gid,
        /// The new options.
        options: JobOptions,
    },
    /// Returns the global options.
    GetGlobalOption,
    /// Changes the global options.
    ChangeGlobalOption(JobOptions),
    /// Returns the total rates and the numbers of transfers.
    GetGlobalStat,
    /// Removes the results of all ended transfers.
    PurgeDownloadResult,
    /// Removes the result of an ended transfer.
    RemoveDownloadResult(Gid),
    /// Returns the version.
    GetVersion,
    /// Returns an identifier of this session.
    GetSessionInfo,
    /// Saves the queue; does nothing, because every change is saved.
    SaveSession,
    /// Lists the methods.
    ListMethods,
    /// Lists the notifications.
    ListNotifications,
}

impl Method {
    /// Parses a method and its parameters, without the token.
    ///
    /// # Errors
    /// [`RpcError`] for an unknown method, and for a parameter that is missing or of another type.
    pub fn parse(name: &str, params: &[Value]) -> Result<Self, RpcError> {
        let parser = PARSERS.iter().find(|(known, _)| *known == name);
        let (_, parser) = parser.ok_or_else(|| RpcError::NoMethod(name.to_owned()))?;
        parser(&Params(params))
    }
}

fn add_uri(params: &Params<'_>) -> Result<Method, RpcError> {
    let uris = params.texts(0)?;
    if uris.is_empty() {
        return Err(RpcError::Parameter { position: 0, expected: "at least one URI" });
    }
    Ok(Method::AddUri { uris, options: params.options(1)?, place: params.place(2)? })
}

fn add_metalink(params: &Params<'_>) -> Result<Method, RpcError> {
    let document = STANDARD.decode(params.text(0)?);
    let document = document.map_err(|_| RpcError::Parameter { position: 0, expected: "Base64" })?;
    Ok(Method::AddMetalink { document, options: params.options(1)?, place: params.place(2)? })
}

/// Parses an offset, a count, and the keys to report.
fn range(params: &Params<'_>) -> Result<(i64, usize, Keys), RpcError> {
    let expected = "an integer that is not negative";
    let count = params.place(1)?.ok_or(RpcError::Parameter { position: 1, expected })?;
    Ok((params.integer(0)?, count, params.keys(2)?))
}

fn change_position(params: &Params<'_>) -> Result<Method, RpcError> {
    let (gid, by) = (params.gid(0)?, params.integer(1)?);
    let to = match params.text(2)? {
        "POS_SET" => Move::FromStart(by),
        "POS_CUR" => Move::FromCurrent(by),
        "POS_END" => Move::FromEnd(by),
        _ => return Err(RpcError::Parameter { position: 2, expected: "POS_SET, POS_CUR or POS_END" }),
    };
    Ok(Method::ChangePosition { gid, to })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(name: &str, params: &Value) -> Result<Method, RpcError> {
        Method::parse(name, params.as_array().unwrap())
    }

    const GID: &str = "0000000000000007";

    #[test]
    fn methods_are_parsed_with_their_parameters() {
        let params = json!([GID, 1, "POS_SET"]);
        let gid: Gid = GID.parse().unwrap();
        for (name, method) in [
            ("aria2.forceRemove", Method::Remove(gid)),
            ("aria2.forcePause", Method::Pause(gid)),
            ("aria2.forcePauseAll", Method::PauseAll),
            ("aria2.tellStatus", Method::TellStatus { gid, keys: Keys::default() }),
            ("aria2.changePosition", Method::ChangePosition { gid, to: Move::FromStart(1) }),
            ("aria2.changeOption", Method::ChangeOption { gid, options: JobOptions::default() }),
            ("system.listMethods", Method::ListMethods),
        ] {
            let params = if name == "aria2.changePosition" { &params } else { &json!([GID]) };
            assert_eq!(parse(name, params).unwrap(), method);
        }
        let names: std::collections::BTreeSet<_> = methods().collect();
        assert_eq!((names.len(), names.contains("system.multicall")), (PARSERS.len() + 1, true));
        let error = parse("aria2.addTorrent", &params).unwrap_err();
        assert_eq!((error.code(), error.http_status()), (-32_601, 404));
        let added = parse("aria2.addUri", &json!([["http://a/", "http://b/"], {"out": "c"}, 2])).unwrap();
        let Method::AddUri { uris, options, place } = added else { panic!("{added:?}") };
        assert_eq!((uris.len(), options.place.out.as_deref(), place), (2, Some("c"), Some(2)));
        let metalink = parse("aria2.addMetalink", &json!(["PG1ldGFsaW5rLz4="])).unwrap();
        assert!(matches!(metalink, Method::AddMetalink { document, .. } if document == b"<metalink/>"));
    }

    #[test]
    fn wrong_parameters_are_reported_with_their_position() {
        for (name, params, place) in [
            ("aria2.addUri", json!([]), 0),
            ("aria2.addUri", json!([[]]), 0),
            ("aria2.addUri", json!([["http://a/", 3]]), 0),
            ("aria2.addUri", json!([["http://a/"], 3]), 1),
            ("aria2.addUri", json!([["http://a/"], {}, -1]), 2),
            ("aria2.addMetalink", json!(["%"]), 0),
            ("aria2.tellStatus", json!(["7"]), 0),
            ("aria2.tellWaiting", json!([0]), 1),
            ("aria2.tellWaiting", json!([0, -1]), 1),
            ("aria2.tellStopped", json!(["0", 1]), 0),
            ("aria2.changePosition", json!([GID, 0, "POS_UP"]), 2),
        ] {
            let error = parse(name, &params).unwrap_err();
            let is_named = matches!(error, RpcError::Parameter { position, .. } if position == place);
            assert!(is_named, "{name} {params}: {error}");
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
