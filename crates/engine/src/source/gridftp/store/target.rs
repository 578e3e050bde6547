//! The file that an upload makes at the server, and its name until it is complete.

use url::Url;

use super::StoreSession;
use crate::cancel::Cancel;
use crate::source::gridftp::error::FtpError;
use crate::source::gridftp::login::ServerAccess;
use crate::source::gridftp::remote_address::RemoteAddress;
use crate::source::gridftp::sessions::Sessions;
use crate::source::http::ClientConfig;

/// How to reach the server, and what the file is called there until it is complete.
pub(crate) struct StoreTarget<'a> {
    pub(super) access: ServerAccess<'a>,
    /// The path that the file gets in the end.
    pub(super) target: Vec<u8>,
}

impl<'a> StoreTarget<'a> {
    /// Takes the target's URL; the temporary file stands in its directory, with `suffix` behind the target's name.
    ///
    /// # Errors
    /// [`FtpError`] where the URL names no file, or a file with logins cannot be read.
    pub(crate) fn new(
        url: &Url,
        suffix: &str,
        config: &'a ClientConfig,
        sessions: &'a Sessions,
    ) -> Result<Self, FtpError> {
        // Its path is relative or absolute by the login.
        let mut access = ServerAccess::new(RemoteAddress::of(url)?, config, sessions)?;
        let temporary = temporary_path(&access.address.path, suffix);
        let target = std::mem::replace(&mut access.address.path, temporary);
        Ok(Self { access, target })
    }

    /// Returns the URL without secrets.
    pub(crate) fn at(&self) -> &str {
        self.access.at()
    }

    /// Logs in, or takes a session that was kept.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn open(&self, cancel: &Cancel) -> Result<StoreSession<'_>, FtpError> {
        let (session, state) = self.access.open_for_any(cancel)?;
        // A file that the server does not tell of is not there, or will be refused when it is stored.
        let held = state.ok().and_then(|state| state.size);
        Ok(StoreSession { store: self, session, held, has_computed: false })
    }
}

/// The longest name that file systems take, in bytes (NAME_MAX of Linux).
const MOST_OF_NAME: usize = 255;

/// Returns the path of the temporary file: the target's name, cut where that would be too long, and `suffix`.
fn temporary_path(target: &[u8], suffix: &str) -> Vec<u8> {
    let name = target.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let mut end = target.len().min(name + MOST_OF_NAME.saturating_sub(suffix.len()));
    // Not within a character of UTF-8.
    while end < target.len() && end > name && target[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    [&target[..end], suffix.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_temporary_name_stands_beside_the_target_and_is_never_too_long() {
        assert_eq!(temporary_path(b"/a/b", ".x"), b"/a/b.x");
        assert_eq!(temporary_path(b"b", ".x"), b"b.x");
        let long = [b"/dir/".as_slice(), "\u{e9}".repeat(127).as_bytes()].concat();
        let path = temporary_path(&long, ".0123456789");
        assert_eq!(&path[..5], b"/dir/");
        assert!(path.len() - 5 <= MOST_OF_NAME && path.ends_with(b".0123456789"));
        assert!(String::from_utf8(path).is_ok());
    }
}
