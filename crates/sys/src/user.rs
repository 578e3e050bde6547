//! Changes the user of this process permanently.

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;

/// Space for the strings of an entry of the user database.
const ENTRY: usize = 16 << 10;

/// Changes the process, with all its threads, to the user `name` and that user's groups; this cannot be undone.
///
/// # Errors
/// `NotFound` for an unknown user; EPERM without CAP_SETUID and CAP_SETGID.
pub fn become_user(name: &str) -> io::Result<()> {
    let unknown = || io::Error::new(io::ErrorKind::NotFound, "there is no such user");
    let name = CString::new(name).map_err(|_| unknown())?;
    let (mut entry, mut text) = (MaybeUninit::<libc::passwd>::uninit(), vec![0; ENTRY]);
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers live across the call; `text` has the length that is given.
    let rc = unsafe {
        libc::getpwnam_r(name.as_ptr(), entry.as_mut_ptr(), text.as_mut_ptr(), text.len(), &raw mut found)
    };
    if rc != 0 {
        return Err(io::Error::from_raw_os_error(rc));
    }
    if found.is_null() {
        return Err(unknown());
    }
    // SAFETY: getpwnam_r has filled the entry if it returns a pointer to it.
    let (uid, gid) = unsafe { (entry.assume_init_ref().pw_uid, entry.assume_init_ref().pw_gid) };
    // SAFETY: the name is a C string; the C library changes all threads alike.
    check(unsafe { libc::initgroups(name.as_ptr(), gid) })?;
    // SAFETY: no pointers.
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
    fn unknown_user_is_not_found() {
        for name in ["no-such-user-here", "a\0b", ""] {
            assert_eq!(become_user(name).unwrap_err().kind(), io::ErrorKind::NotFound, "{name:?}");
        }
    }
}
