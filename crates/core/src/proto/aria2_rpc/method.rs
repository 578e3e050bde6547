//! The methods and their checked parameters.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::options::JobOptions;
use super::params::Params;
use super::{Gid, Keys, RpcError};

/// All methods that [`Method::parse`] accepts, and `system.multicall`, whose calls are parsed one by one.
pub const METHODS: &[&str] = &[
    "aria2.addUri",
    "aria2.addMetalink",
    "aria2.remove",
    "aria2.forceRemove",
    "aria2.pause",
    "aria2.pauseAll",
    "aria2.forcePause",
    "aria2.forcePauseAll",
    "aria2.unpause",
    "aria2.unpauseAll",
    "aria2.tellStatus",
    "aria2.getUris",
    "aria2.getFiles",
    "aria2.getPeers",
    "aria2.getServers",
    "aria2.tellActive",
    "aria2.tellWaiting",
    "aria2.tellStopped",
    "aria2.changePosition",
    "aria2.getOption",
    "aria2.changeOption",
    "aria2.getGlobalOption",
    "aria2.changeGlobalOption",
    "aria2.getGlobalStat",
    "aria2.purgeDownloadResult",
    "aria2.removeDownloadResult",
    "aria2.getVersion",
    "aria2.getSessionInfo",
    "aria2.saveSession",
    "system.multicall",
    "system.listMethods",
    "system.listNotifications",
];

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
        let params = Params(params);
        Ok(match name {
            "aria2.addUri" => {
                let uris = params.texts(0)?;
                if uris.is_empty() {
                    return Err(RpcError::Parameter { position: 0, expected: "at least one URI" });
                }
                Self::AddUri { uris, options: params.options(1)?, place: params.place(2)? }
            }
            "aria2.addMetalink" => {
                let document = STANDARD.decode(params.text(0)?);
                let document =
                    document.map_err(|_| RpcError::Parameter { position: 0, expected: "Base64" })?;
                Self::AddMetalink { document, options: params.options(1)?, place: params.place(2)? }
            }
            "aria2.changePosition" => {
                let (gid, by) = (params.gid(0)?, params.integer(1)?);
                let to = match params.text(2)? {
                    "POS_SET" => Move::FromStart(by),
                    "POS_CUR" => Move::FromCurrent(by),
                    "POS_END" => Move::FromEnd(by),
                    _ => {
                        return Err(RpcError::Parameter {
                            position: 2,
                            expected: "POS_SET, POS_CUR or POS_END",
                        });
                    }
                };
                Self::ChangePosition { gid, to }
            }
            "aria2.changeOption" => Self::ChangeOption { gid: params.gid(0)?, options: params.options(1)? },
            "aria2.changeGlobalOption" => Self::ChangeGlobalOption(params.options(0)?),
            _ => {
                return Self::parse_query(name, &params).unwrap_or_else(|| Self::parse_action(name, &params));
            }
        })
    }

    /// Parses the methods that only query.
    fn parse_query(name: &str, params: &Params) -> Option<Result<Self, RpcError>> {
        let range = || -> Result<(i64, usize, Keys), RpcError> {
            let count = params.place(1)?;
            let expected = "an integer that is not negative";
            let count = count.ok_or(RpcError::Parameter { position: 1, expected })?;
            Ok((params.integer(0)?, count, params.keys(2)?))
        };
        Some(match name {
            "aria2.tellStatus" => {
                params.gid(0).and_then(|gid| Ok(Self::TellStatus { gid, keys: params.keys(1)? }))
            }
            "aria2.tellActive" => params.keys(0).map(Self::TellActive),
            "aria2.tellWaiting" => {
                range().map(|(offset, count, keys)| Self::TellWaiting { offset, count, keys })
            }
            "aria2.tellStopped" => {
                range().map(|(offset, count, keys)| Self::TellStopped { offset, count, keys })
            }
            "aria2.getUris" => params.gid(0).map(Self::GetUris),
            "aria2.getFiles" => params.gid(0).map(Self::GetFiles),
            "aria2.getPeers" => params.gid(0).map(Self::GetPeers),
            "aria2.getServers" => params.gid(0).map(Self::GetServers),
            "aria2.getOption" => params.gid(0).map(Self::GetOption),
            "aria2.getGlobalOption" => Ok(Self::GetGlobalOption),
            "aria2.getGlobalStat" => Ok(Self::GetGlobalStat),
            "aria2.getVersion" => Ok(Self::GetVersion),
            "aria2.getSessionInfo" => Ok(Self::GetSessionInfo),
            "system.listMethods" => Ok(Self::ListMethods),
            "system.listNotifications" => Ok(Self::ListNotifications),
            _ => return None,
        })
    }

    /// Parses the methods that change one transfer or all.
    fn parse_action(name: &str, params: &Params) -> Result<Self, RpcError> {
        Ok(match name {
            // The forced variants are equal to the plain ones, because neither a pause nor a cancel waits for a server.
            "aria2.remove" | "aria2.forceRemove" => Self::Remove(params.gid(0)?),
            "aria2.pause" | "aria2.forcePause" => Self::Pause(params.gid(0)?),
            "aria2.pauseAll" | "aria2.forcePauseAll" => Self::PauseAll,
            "aria2.unpause" => Self::Unpause(params.gid(0)?),
            "aria2.unpauseAll" => Self::UnpauseAll,
            "aria2.purgeDownloadResult" => Self::PurgeDownloadResult,
            "aria2.removeDownloadResult" => Self::RemoveDownloadResult(params.gid(0)?),
            "aria2.saveSession" => Self::SaveSession,
            _ => return Err(RpcError::NoMethod(name.to_owned())),
        })
    }
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
    fn every_listed_method_is_parsed_with_its_parameters() {
        let params = json!([GID, 1, "POS_SET"]);
        for name in METHODS.iter().filter(|name| **name != "system.multicall") {
            assert!(!matches!(parse(name, &params), Err(RpcError::NoMethod(_))), "{name}");
        }
        let error = parse("aria2.addTorrent", &params).unwrap_err();
        assert_eq!((error.code(), error.http_status()), (-32_601, 404));
        let added = parse("aria2.addUri", &json!([["http://a/", "http://b/"], {"out": "c"}, 2])).unwrap();
        let Method::AddUri { uris, options, place } = added else { panic!("{added:?}") };
        assert_eq!((uris.len(), options.out.as_deref(), place), (2, Some("c"), Some(2)));
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
