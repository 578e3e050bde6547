//! The state of a file on an FTP server, which shows whether the file has changed since the
//! transfer started.

use std::fmt;
use std::time::SystemTime;

use longhaul_core::identity::Identity;
use longhaul_core::proto::gridftp::{
    Command, Facts, FileKind, Reply, format_date, parse_mdtm, parse_mlst, parse_size,
};
use longhaul_core::units::Bytes;

use super::error::FtpError;

/// A file's size and modification time, as far as the server states them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RemoteState {
    pub(super) size: Option<Bytes>,
    pub(super) modified: Option<SystemTime>,
}

/// The commands that request the state of a file; each has one reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StateCommands {
    /// MLST, which returns size and time.
    Mlst,
    /// SIZE, then MDTM.
    SizeAndTime,
}

impl StateCommands {
    /// Chooses the commands for a file, given whether MLST is of use.
    pub(super) fn preferring(mlst: bool) -> Self {
        if mlst { Self::Mlst } else { Self::SizeAndTime }
    }

    /// Returns the commands for a file.
    pub(super) fn commands(self, path: &[u8]) -> Vec<Command<'_>> {
        match self {
            Self::Mlst => vec![Command::Mlst(path)],
            Self::SizeAndTime => vec![Command::Size(path), Command::Mdtm(path)],
        }
    }

    /// Parses the replies to [`Self::commands`].
    ///
    /// # Errors
    /// [`FtpError::Refused`] if the file no longer exists, or the server refuses to answer.
    pub(super) fn read(self, replies: &[Reply], at: &str) -> Result<RemoteState, FtpError> {
        let refused =
            |verb, reply: &Reply| FtpError::Refused { at: at.to_owned(), verb, reply: reply.clone() };
        match (self, replies) {
            (Self::Mlst, [mlst]) => {
                parse_mlst(mlst).map(RemoteState::from).map_err(|_| refused("MLST", mlst))
            }
            (Self::SizeAndTime, [size, time]) => {
                let modified = parse_mdtm(time);
                // A server may refuse SIZE only, or state a size that is none, such as a negative
                // one of 32 bits.
                let exists = size.is_positive() || is_unknown_command(size) || modified.is_some();
                if !exists {
                    return Err(refused("SIZE", size));
                }
                Ok(RemoteState { size: parse_size(size), modified })
            }
            _ => Err(FtpError::unrequested(at, "another number of replies")),
        }
    }
}

/// Returns whether a reply means that the command is unknown or not implemented.
pub(super) fn is_unknown_command(reply: &Reply) -> bool {
    matches!(reply.code, 500 | 501 | 502 | 504)
}

impl From<Facts> for RemoteState {
    fn from(facts: Facts) -> Self {
        Self { size: facts.size, modified: facts.modify }
    }
}

impl RemoteState {
    /// Derives the state from the replies to MLST, SIZE and MDTM, and chooses the commands for
    /// later requests.
    ///
    /// # Errors
    /// [`FtpError`] if the file does not exist or is a directory.
    pub(super) fn first(
        mlst: &Reply,
        size: &Reply,
        time: &Reply,
        at: &str,
    ) -> Result<(Self, StateCommands), FtpError> {
        if let Ok(facts) = parse_mlst(mlst) {
            if matches!(facts.kind, FileKind::Directory | FileKind::ListedOrParent) {
                return Err(FtpError::url(at, "it names a directory; name a file"));
            }
            if facts.size.is_some() && facts.modify.is_some() {
                return Ok((facts.into(), StateCommands::Mlst));
            }
        }
        let by_size = StateCommands::SizeAndTime;
        Ok((by_size.read(&[size.clone(), time.clone()], at)?, by_size))
    }

    /// Returns the identity under which ranges are combined; the size is compared separately.
    pub(super) fn identity(&self) -> Option<Identity> {
        self.time().map(Identity::ModificationTime)
    }

    /// Formats the time as in replies (RFC 3659, section 2.3).
    fn time(&self) -> Option<String> {
        let modified = self.modified?;
        let nanos = modified.duration_since(SystemTime::UNIX_EPOCH).ok()?.subsec_nanos();
        let whole = format_date(modified)?;
        Some(if nanos == 0 { whole } else { format!("{whole}.{nanos:09}").trim_end_matches('0').to_owned() })
    }
}

impl fmt::Display for RemoteState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size {
            Some(size) => write!(f, "{} bytes", size.get())?,
            None => f.write_str("an unknown size")?,
        }
        match self.time() {
            Some(time) => write!(f, " of {time}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(code: u16, lines: &[&str]) -> Reply {
        Reply { code, lines: lines.iter().map(|line| (*line).to_owned()).collect() }
    }

    #[test]
    fn state_is_parsed_from_mlst_or_size_and_mdtm() {
        let mlst = reply(250, &["status", " Type=file;Size=7;Modify=20260101000000.5; f", "End"]);
        let (size, time) = (reply(213, &["7"]), reply(213, &["20260101000000"]));
        let unknown = reply(500, &["unknown"]);
        let first = |mlst, size, time| RemoteState::first(mlst, size, time, "ftp://h/f");
        let found = |(state, commands): (RemoteState, _)| (state.to_string(), commands);
        let of_mlst = ("7 bytes of 20260101000000.5".to_owned(), StateCommands::Mlst);
        assert_eq!(found(first(&mlst, &unknown, &unknown).unwrap()), of_mlst);
        let of_size = ("7 bytes of 20260101000000".to_owned(), StateCommands::SizeAndTime);
        assert_eq!(found(first(&unknown, &size, &time).unwrap()), of_size);
        let (state, _) = first(&unknown, &unknown, &unknown).unwrap();
        assert_eq!((state.size, state.identity()), (None, None));
        let negative = reply(213, &["-2147483648"]);
        let missing = reply(550, &["f: No such file or directory"]);
        for size in [&negative, &missing] {
            let (state, _) = first(&unknown, size, &time).unwrap();
            assert!(state.size.is_none() && state.modified.is_some());
        }
        assert!(first(&unknown, &missing, &missing).is_err());
        let directory = reply(250, &["status", " Type=dir;Modify=20260101000000; d", "End"]);
        assert!(first(&directory, &missing, &missing).is_err());
    }
}
