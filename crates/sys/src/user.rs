//! Changes the user of this process permanently.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;

/// Space for the strings of an entry of the user database.
const ENTRY: usize = 16 << 10;

/// An entry of the user database.
struct UserEntry {
    name: CString,
    uid: libc::uid_t,
    gid: libc::gid_t,
}

/// Changes the process, with all its threads, to `user`; this cannot be undone.
///
/// `user` is a name or a UID of the user database, with the groups from there, or UID:GID, with that group only.
///
/// # Errors
/// `NotFound` for an unknown user; EPERM without CAP_SETUID and CAP_SETGID.
pub fn become_user(user: &str) -> io::Result<()> {
    if let Some((uid, gid)) = user.split_once(':').and_then(|(uid, gid)| Some((number(uid)?, number(gid)?))) {
        // SAFETY: a count of 0 needs no list; the C library changes all threads alike.
        check(unsafe { libc::setgroups(0, std::ptr::null()) })?;
        return set_ids(uid, gid);
    }
    let unknown = || io::Error::new(io::ErrorKind::NotFound, "there is no such user");
    let name = CString::new(user).map_err(|_| unknown())?;
    let by_name = by_name(&name)?;
    let entry = match number(user) {
        Some(uid) if by_name.is_none() => by_uid(uid)?.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "no user has this UID, so its group is unknown")
        })?,
        _ => by_name.ok_or_else(unknown)?,
    };
    // SAFETY: the name is a C string; the C library changes all threads alike.
    check(unsafe { libc::initgroups(entry.name.as_ptr(), entry.gid) })?;
    set_ids(entry.uid, entry.gid)
}

/// Parses a UID or GID; the largest number means "unchanged" to the kernel, and is none.
fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|id| is_number && *id != u32::MAX)
}

fn by_name(name: &CStr) -> io::Result<Option<UserEntry>> {
    look_up(|entry, text, len, found| {
        // SAFETY: the name is a C string; the other pointers are those of `look_up`.
        unsafe { libc::getpwnam_r(name.as_ptr(), entry, text, len, found) }
    })
}

fn by_uid(uid: libc::uid_t) -> io::Result<Option<UserEntry>> {
    look_up(|entry, text, len, found| {
        // SAFETY: the pointers are those of `look_up`.
        unsafe { libc::getpwuid_r(uid, entry, text, len, found) }
    })
}

/// Reads the entry that `find`, a function of getpwnam(3), finds.
fn look_up(
    find: impl FnOnce(*mut libc::passwd, *mut libc::c_char, usize, *mut *mut libc::passwd) -> libc::c_int,
) -> io::Result<Option<UserEntry>> {
    let (mut entry, mut text) = (MaybeUninit::<libc::passwd>::uninit(), vec![0; ENTRY]);
    let mut found = std::ptr::null_mut();
    // All pointers live across the call; `text` has the length that is given.
    let rc = find(entry.as_mut_ptr(), text.as_mut_ptr(), text.len(), &raw mut found);
    if rc != 0 {
        return Err(io::Error::from_raw_os_error(rc));
    }
    if found.is_null() {
        return Ok(None);
    }
    // SAFETY: the call has filled the entry where it returns a pointer to it; its strings are in `text`.
    let entry = unsafe {
        let entry = entry.assume_init_ref();
        UserEntry { name: CStr::from_ptr(entry.pw_name).to_owned(), uid: entry.pw_uid, gid: entry.pw_gid }
    };
    Ok(Some(entry))
}

fn set_ids(uid: libc::uid_t, gid: libc::gid_t) -> io::Result<()> {
    // SAFETY: no pointers; the C library changes all threads alike.
    check(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: no pointers.
    check(unsafe { libc::setresuid(uid, uid, uid) })
}

fn check(rc: libc::c_int) -> io::Result<()> {
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_is_found_by_name_and_number_alone() {
        let root = by_uid(0).unwrap().unwrap();
        let by_name = by_name(&root.name).unwrap().unwrap();
        assert_eq!((by_name.uid, by_name.gid, number("0")), (0, root.gid, Some(0)));
        assert!(by_uid(2_000_000_001).unwrap().is_none());
        for name in ["no-such-user-here", "a\0b", "", "2000000001", "4294967295:0", "1:x", "+1:1", "1:"] {
            assert_eq!(become_user(name).unwrap_err().kind(), io::ErrorKind::NotFound, "{name:?}");
        }
    }
}
