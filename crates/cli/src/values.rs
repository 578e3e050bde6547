//! Values of options common to several commands.

use std::time::Duration;

use longhaul_core::units::{Bytes, Rtt};
use longhaul_engine::sink::memory_budget::AppBuffer;

/// The heading of options for experiments, which the short help omits.
pub(crate) const RESEARCH: &str = "Tuning and research";

/// A value, or an automatic choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AutoOr<T> {
    Auto,
    Value(T),
}

/// Parses a timeout; a number without unit is in seconds, as in other programs.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let is_bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let with_unit = if is_bare { format!("{text}s") } else { text.to_owned() };
    match with_unit.parse::<Rtt>() {
        Ok(time) if !time.get().is_zero() => Ok(time.get()),
        Ok(_) => Err("nothing happens in no time".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a period of at least one second, such as 90s, 30m, 12h or 7d.
pub(crate) fn period(text: &str) -> Result<Duration, String> {
    let unit = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3_600,
        Some('d') => 86_400,
        _ => 0,
    };
    let number = text.get(..text.len().saturating_sub(1)).and_then(|number| number.parse::<u32>().ok());
    match number.filter(|number| *number > 0 && unit > 0) {
        Some(number) => Ok(Duration::from_secs(u64::from(number) * unit)),
        None => Err("write a whole number and s, m, h or d, as 7d".into()),
    }
}

/// Parses `--app-buffer`.
pub(crate) fn app_buffer(text: &str) -> Result<AppBuffer, String> {
    match text {
        "auto" => Ok(AppBuffer::Auto),
        size => Bytes::with_unit(size).map(AppBuffer::Fixed),
    }
}

/// Maximum of concurrent files; each has its own threads and connections.
const MOST_PARALLEL: usize = 64;

/// Parses the number of concurrent files.
pub(crate) fn parallel(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=MOST_PARALLEL) => Ok(n),
        _ => Err(format!("write a number from 1 to {MOST_PARALLEL}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_time_is_of_seconds() {
        assert_eq!((time("5"), time("0.5")), (Ok(Duration::from_secs(5)), Ok(Duration::from_millis(500))));
        assert_eq!(time("200ms"), Ok(Duration::from_millis(200)));
        for text in ["", "0", ".", "1.2.3", "-1", "5x"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn period_has_a_unit() {
        assert_eq!(period("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(period("7d"), Ok(Duration::from_secs(604_800)));
        for text in ["", "7", "0d", "-1d", "1.5h", "d", "7\u{fc}"] {
            assert!(period(text).is_err(), "{text}");
        }
    }
}
