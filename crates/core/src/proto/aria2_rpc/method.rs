//! The methods, with their parameters checked.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::options::JobOptions;
use super::params::Params;
use super::{Gid, Keys, RpcError};

/// All methods that [`Method::parse`] knows, and `system.multicall`, whose calls are parsed one by one.
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

/// What a WebSocket's client is notified of.
pub const NOTIFICATIONS: &[&str] = &[
    "aria2.onDownloadStart",
    "aria2.onDownloadPause",
    "aria2.onDownloadStop",
    "aria2.onDownloadComplete",
    "aria2.onDownloadError",
];

/// Where `aria2.changePosition` counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// The begin of the queue (`POS_SET`).
    FromStart(i64),
    /// Where the transfer stands (`POS_CUR`).
    FromCurrent(i64),
    /// The end of the queue (`POS_END`).
    FromEnd(i64),
}

impl Move {
    /// Returns the new place, from 0, of what stands at `current` in a queue of `length`.
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
        /// Its URLs, at least one.
        uris: Vec<String>,
        /// Its options.
        options: JobOptions,
        /// Where in the queue, from 0; at its end where `None`.
        place: Option<usize>,
    },
    /// Adds the files of a Metalink.
    AddMetalink {
        /// The document.
        document: Vec<u8>,
        /// Its options.
        options: JobOptions,
        /// Where in the queue, from 0; at its end where `None`.
        place: Option<usize>,
    },
    /// Cancels a transfer.
    Remove(Gid),
    /// Pauses one.
    Pause(Gid),
    /// Pauses all.
    PauseAll,
    /// Continues one.
    Unpause(Gid),
    /// Continues all.
    UnpauseAll,
    /// Reports one.
    TellStatus {
        /// Which.
        gid: Gid,
        /// Which keys to report.
        keys: Keys,
    },
    /// Reports the running ones.
    TellActive(Keys),
    /// Reports the waiting and paused ones: `count` from `offset`; from the end, backwards, where that is negative.
    TellWaiting {
        /// From where.
        offset: i64,
        /// How many at most.
        count: usize,
        /// Which keys to report.
        keys: Keys,
    },
    /// Reports the ended ones, likewise.
    TellStopped {
        /// From where.
        offset: i64,
        /// How many at most.
        count: usize,
        /// Which keys to report.
        keys: Keys,
    },
    /// Lists a transfer's URLs.
    GetUris(Gid),
    /// Lists its files.
    GetFiles(Gid),
    /// Lists the peers of a torrent: always none.
    GetPeers(Gid),
    /// Lists the servers in use.
    GetServers(Gid),
    /// Moves a transfer within the queue.
    ChangePosition {
        /// Which.
        gid: Gid,
        /// Where to.
        to: Move,
    },
    /// Returns a transfer's options.
    GetOption(Gid),
    /// Changes them.
    ChangeOption {
        /// Which.
        gid: Gid,
        /// Its options.
        options: JobOptions,
    },
    /// Returns the options of all.
    GetGlobalOption,
    /// Changes them.
    ChangeGlobalOption(JobOptions),
    /// Returns the total rate and how many there are.
    GetGlobalStat,
    /// Forgets all ended transfers.
    PurgeDownloadResult,
    /// Forgets one.
    RemoveDownloadResult(Gid),
    /// Returns the version.
    GetVersion,
    /// Returns a name of this run.
    GetSessionInfo,
    /// Saves the queue, which is always saved.
    SaveSession,
    /// Lists the methods.
    ListMethods,
    /// Lists the notifications.
    ListNotifications,
}

impl Method {
    /// Reads a method and its parameters, without the token.
    ///
    /// # Errors
    /// [`RpcError`] for an unknown name, and for a parameter that is missing or of another type.
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

    /// Reads the methods that change nothing.
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

    /// Reads the methods that act on one transfer or on all.
    fn parse_action(name: &str, params: &Params) -> Result<Self, RpcError> {
        Ok(match name {
            // A pause or cancel of Longhaul never waits for a server, so both variants are one.
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
    fn every_listed_method_is_known() {
        let params = json!([GID, 1, "POS_SET"]);
        let listed = METHODS.iter().filter(|name| **name != "system.multicall");
        for name in listed {
            let parsed = parse(name, &params);
            assert!(!matches!(parsed, Err(RpcError::NoMethod(_))), "{name}");
        }
        let error = parse("aria2.addTorrent", &params).unwrap_err();
        assert_eq!((error.code(), error.http_status()), (-32_601, 404));
    }

    #[test]
    fn add_takes_mirrors_options_and_place() {
        let added = parse("aria2.addUri", &json!([["http://a/", "http://b/"], {"out": "c"}, 2])).unwrap();
        let Method::AddUri { uris, options, place } = added else { panic!("{added:?}") };
        assert_eq!((uris.len(), options.out.as_deref(), place), (2, Some("c"), Some(2)));
        let metalink = parse("aria2.addMetalink", &json!(["PG1ldGFsaW5rLz4="])).unwrap();
        assert!(matches!(metalink, Method::AddMetalink { document, .. } if document == b"<metalink/>"));
    }

    #[test]
    fn wrong_parameters_are_named_by_their_place() {
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
            assert!(
                matches!(error, RpcError::Parameter { position, .. } if position == place),
                "{name} {params}: {error}"
            );
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
