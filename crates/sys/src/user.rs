//! Changes the user of this process permanently.

use std::ffi::CString;
use std::io;

use nix::unistd::{Gid, Uid, User, initgroups, setgroups, setresgid, setresuid};

/// Changes the process, with all its threads, to `user`; this cannot be undone.
///
/// `user` is a name or a UID of the user database, with the groups from there, or UID:GID, with
/// that group only.
///
/// # Errors
/// `NotFound` for an unknown user; EPERM without CAP_SETUID and CAP_SETGID.
pub fn become_user(user: &str) -> io::Result<()> {
    if let Some((uid, gid)) = user.split_once(':').and_then(|(uid, gid)| Some((number(uid)?, number(gid)?))) {
        setgroups(&[])?;
        return set_ids(Uid::from_raw(uid), Gid::from_raw(gid));
    }
    let unknown = |why| io::Error::new(io::ErrorKind::NotFound, why);
    let found = match (User::from_name(user)?, number(user)) {
        (Some(found), _) => found,
        (None, Some(uid)) => User::from_uid(Uid::from_raw(uid))?
            .ok_or_else(|| unknown("no user has this UID, so its group is unknown"))?,
        (None, None) => return Err(unknown("there is no such user")),
    };
    initgroups(&CString::new(found.name)?, found.gid)?;
    set_ids(found.uid, found.gid)
}

/// Parses a UID or GID; the largest number means "unchanged" to the kernel, and is none.
fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|id| is_number && *id != u32::MAX)
}

fn set_ids(uid: Uid, gid: Gid) -> io::Result<()> {
    setresgid(gid, gid, gid)?;
    Ok(setresuid(uid, uid, uid)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_users_are_not_found() {
        for name in ["no-such-user-here", "a\0b", "", "2000000001", "4294967295:0", "1:x", "+1:1", "1:"] {
            assert_eq!(become_user(name).unwrap_err().kind(), io::ErrorKind::NotFound, "{name:?}");
        }
    }
}
