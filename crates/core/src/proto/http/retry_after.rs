//! The Retry-After field (RFC 9110, section 10.2.3).

use std::time::{Duration, SystemTime};

/// Parses the time to wait from `now`: a number of seconds, or an HTTP date, which may be in the
/// past.
pub fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // A number of seconds that exceeds a u64 is an infinite time.
        return Some(value.parse().map_or(Duration::MAX, Duration::from_secs));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_parsed() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let seconds = |text| retry_after(text, now).map(|d| d.as_secs());
        assert_eq!(seconds(" 120 "), Some(120));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:40:00 GMT"), Some(0));
        assert_eq!(retry_after("99999999999999999999999", now), Some(Duration::MAX));
        for text in ["", "soon", "-1", "1.5"] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
