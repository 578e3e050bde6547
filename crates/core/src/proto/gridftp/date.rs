//! Dates as `YYYYMMDDHHMMSS[.sss]` in UTC (RFC 3659, section 2.3).

use std::time::{Duration, SystemTime};

use time::{Date, Month, OffsetDateTime};

use crate::proto::number;

/// Parses a date from 1970 on; `None` for other text.
pub fn parse_date(text: &str) -> Option<SystemTime> {
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, rest)| (whole, Some(rest)));
    if whole.len() != 14 {
        return None;
    }
    let field = |from: usize, to: usize| whole.get(from..to).and_then(number::<u64>);
    let small = |from: usize| whole.get(from..from + 2).and_then(number::<u8>);
    let month = Month::try_from(small(4)?).ok()?;
    let date = Date::from_calendar_date(i32::try_from(field(0, 4)?).ok()?, month, small(6)?).ok()?;
    let (hour, minute, second) = (field(8, 10)?, field(10, 12)?, field(12, 14)?);
    // A leap second is written as 60.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let midnight = u64::try_from(date.midnight().assume_utc().unix_timestamp()).ok()?;
    let seconds = midnight + hour * 3600 + minute * 60 + second;
    let nanos = match fraction {
        None => 0,
        Some(digits) if (1..=9).contains(&digits.len()) => {
            number::<u32>(digits)? * 10_u32.pow(9 - u32::try_from(digits.len()).ok()?)
        }
        Some(_) => return None,
    };
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

/// Formats a date in whole seconds; `None` before 1970 and after 9999.
pub fn format_date(date: SystemTime) -> Option<String> {
    let seconds = date.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    let date = OffsetDateTime::from_unix_timestamp(i64::try_from(seconds).ok()?).ok()?;
    let ((year, month, day), (hour, minute, second)) = (date.to_calendar_date(), date.to_hms());
    let month = u8::from(month);
    (year <= 9999).then(|| format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn dates_are_parsed_and_formatted_up_to_9999() {
        for (text, date) in [
            ("19700101000000", at(0)),
            ("19941106084937", at(784_111_777)),
            ("20000229235959", at(951_868_799)),
            ("20261123212500.5", at(1_795_469_100) + Duration::from_millis(500)),
        ] {
            assert_eq!(parse_date(text), Some(date), "{text}");
        }
        for text in "|20260101|20261301000000|20260230000000|19000229000000|20260101240000|\
            20260101006000|2026010100000x|+2026010100000|20260101000000.|20260101000000.x|\
            20260101000000.0123456789|202601010000000|2026010100\u{e9}00"
            .split('|')
        {
            assert_eq!(parse_date(text), None, "{text}");
        }
        assert_eq!(format_date(at(253_402_300_799)).as_deref(), Some("99991231235959"));
        assert_eq!(format_date(at(253_402_300_800)), None);
        assert_eq!(format_date(at(u64::MAX >> 2)), None);
    }

    proptest! {
        #[test]
        fn formatted_dates_are_parsed_as_equal(seconds in 0u64..253_402_300_800) {
            let text = format_date(at(seconds)).unwrap();
            prop_assert_eq!(parse_date(&text), Some(at(seconds)));
        }
    }
}
