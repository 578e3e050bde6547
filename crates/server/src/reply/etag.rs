//! The entity tag of a served file; `core::proto::http::Validators` compares it with those of
//! requests.

use std::io;
use std::time::{Duration, SystemTime};

use longhaul_core::proto::http::ETag;

/// Returns the entity tag of a file: of its size and time of modification (seconds and
/// nanoseconds), which replicas and restored files share (`rsync -t`). A client that sets an
/// upload's time sets its seconds only.
pub(crate) fn entity_tag(size: u64, (seconds, nanoseconds): (i64, i64), now: SystemTime) -> io::Result<ETag> {
    let since = Duration::from_secs(seconds.unsigned_abs());
    let second = match seconds < 0 {
        true => SystemTime::UNIX_EPOCH.checked_sub(since),
        false => SystemTime::UNIX_EPOCH.checked_add(since),
    };
    let fraction = Duration::from_nanos(nanoseconds.unsigned_abs());
    let written = second.and_then(|second| second.checked_add(fraction)).unwrap_or(now);
    let weak = if is_unsettled(written, now) { "W/" } else { "" };
    ETag::parse(&format!("{weak}\"{size:x}-{seconds:x}.{nanoseconds:09}\""))
        .ok_or_else(|| io::Error::other("an entity tag with an illegal character"))
}

/// More than the tick of Linux, 10 ms at most, with which it stamps files where the file system
/// keeps a fraction of a second.
const FINE_RESOLUTION: Duration = Duration::from_millis(100);

/// Returns whether the file was written so recently that a further write could keep the entity tag.
///
/// File systems without a fraction have a resolution of up to two seconds (FAT), and the clock of a
/// file server may be ahead of this one.
fn is_unsettled(written: SystemTime, now: SystemTime) -> bool {
    const COARSE_RESOLUTION: Duration = Duration::from_secs(2);
    match now.duration_since(written) {
        Ok(age) if has_fraction(written) => age < FINE_RESOLUTION,
        Ok(age) => age < COARSE_RESOLUTION,
        Err(ahead) => ahead.duration() < COARSE_RESOLUTION,
    }
}

/// Returns the time until the entity tag of a file that has just been written is strong, 200 ms at
/// most; `None` if it is strong already, or only later.
pub(crate) fn settles_in(written: SystemTime, now: SystemTime) -> Option<Duration> {
    let left = match now.duration_since(written) {
        Ok(age) => FINE_RESOLUTION.checked_sub(age)?,
        // Written after `now` was read, or by a file server whose clock is ahead.
        Err(ahead) if ahead.duration() < FINE_RESOLUTION => FINE_RESOLUTION + ahead.duration(),
        Err(_) => return None,
    };
    Some(left).filter(|left| !left.is_zero() && has_fraction(written))
}

fn has_fraction(written: SystemTime) -> bool {
    written.duration_since(SystemTime::UNIX_EPOCH).is_ok_and(|time| time.subsec_nanos() != 0)
}
