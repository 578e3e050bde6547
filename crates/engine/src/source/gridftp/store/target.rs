//! The target of an upload, and its temporary name.

use url::Url;

use super::StoreSession;
use crate::cancel::Cancel;
use crate::source::gridftp::error::FtpError;
use crate::source::gridftp::login::ServerAccess;
use crate::source::gridftp::remote_address::RemoteAddress;
use crate::source::gridftp::sessions::Sessions;
use crate::source::http::ClientConfig;

/// The server, the path of the target, and its temporary path.
pub(crate) struct StoreTarget<'a> {
    pub(super) access: ServerAccess<'a>,
    /// The final path of the file.
    pub(super) target: Vec<u8>,
}

impl<'a> StoreTarget<'a> {
    /// Parses the target's URL; the temporary file is in the target's directory, and has `suffix` after the target's
    /// name.
    ///
    /// # Errors
    /// [`FtpError`] if the URL names no file, or the file of logins cannot be read.
    pub(crate) fn new(
        url: &Url,
        suffix: &str,
        config: &'a ClientConfig,
        sessions: &'a Sessions,
    ) -> Result<Self, FtpError> {
        // The login decides whether the path is relative or absolute.
        let mut access = ServerAccess::new(RemoteAddress::of(url)?, config, sessions)?;
        let temporary = temporary_path(&access.address.path, suffix);
        let target = std::mem::replace(&mut access.address.path, temporary);
        Ok(Self { access, target })
    }

    /// Logs in, or takes a kept session.
    ///
    /// # Errors
    /// [`FtpError`].
    pub(crate) fn open(&self, cancel: &Cancel) -> Result<StoreSession<'_>, FtpError> {
        let (session, state) = self.access.open_for_any(cancel)?;
        // If the server does not report a file, it does not exist, or storing it will be refused.
        let held = state.ok().and_then(|state| state.size);
        Ok(StoreSession { store: self, session, held, has_computed: false })
    }
}

/// The maximum length of a name on file systems in bytes (NAME_MAX of Linux).
const MAX_NAME_LENGTH: usize = 255;

/// Returns the temporary path: the target's name, truncated if necessary, and `suffix`.
fn temporary_path(target: &[u8], suffix: &str) -> Vec<u8> {
    let name = target.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let mut end = target.len().min(name + MAX_NAME_LENGTH.saturating_sub(suffix.len()));
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
    fn temporary_name_is_beside_the_target_and_never_too_long() {
        assert_eq!(temporary_path(b"/a/b", ".x"), b"/a/b.x");
        assert_eq!(temporary_path(b"b", ".x"), b"b.x");
        let long = [b"/dir/".as_slice(), "\u{e9}".repeat(127).as_bytes()].concat();
        let path = temporary_path(&long, ".0123456789");
        assert_eq!(&path[..5], b"/dir/");
        assert!(path.len() - 5 <= MAX_NAME_LENGTH && path.ends_with(b".0123456789"));
        assert!(String::from_utf8(path).is_ok());
    }
}
