//! The local time of day, by the C library and the user's time zone.

use std::io;
use std::mem::MaybeUninit;

use longhaul_core::queue_admission::WeekTime;

/// Converts seconds since 1970 in UTC.
///
/// # Errors
/// EOVERFLOW for a year that does not fit.
pub fn local_time(unix: i64) -> io::Result<WeekTime> {
    let mut parts = MaybeUninit::<libc::tm>::uninit();
    // SAFETY: both pointers are valid for the call, which writes the whole of `parts` unless it
    // returns null.
    let done = unsafe { libc::localtime_r(&raw const unix, parts.as_mut_ptr()) };
    if done.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: localtime_r has written it.
    let parts = unsafe { parts.assume_init() };
    let field = |value: libc::c_int| u32::try_from(value).unwrap_or_default();
    let second = field(parts.tm_hour) * 3600 + field(parts.tm_min) * 60 + field(parts.tm_sec);
    Ok(WeekTime { weekday: u8::try_from(parts.tm_wday).unwrap_or_default(), second })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_day_has_the_next_weekday_and_equal_time() {
        // A Thursday in January, when no zone changes its offset.
        let (one, next) = (local_time(1_705_000_000).unwrap(), local_time(1_705_086_400).unwrap());
        assert_eq!((one.weekday + 1) % 7, next.weekday);
        assert_eq!(one.second, next.second);
        assert!(local_time(i64::MAX).is_err());
    }
}
