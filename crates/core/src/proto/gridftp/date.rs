//! Dates as `YYYYMMDDHHMMSS[.sss]` in UTC (RFC 3659, section 2.3).

use std::time::{Duration, SystemTime};

use super::number;

const DAY: u64 = 86_400;

/// Parses a date from 1970 on; `None` for other text.
pub fn parse_date(text: &str) -> Option<SystemTime> {
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, rest)| (whole, Some(rest)));
    if whole.len() != 14 {
        return None;
    }
    let field = |from: usize, to: usize| whole.get(from..to).and_then(number);
    let (year, month, day) = (field(0, 4)?, field(4, 6)?, field(6, 8)?);
    let (hour, minute, second) = (field(8, 10)?, field(10, 12)?, field(12, 14)?);
    let real = year >= 1970 && (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
    // A leap second is written as 60.
    if !real || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days: u64 = (1970..year).map(|year| if leap(year) { 366 } else { 365 }).sum::<u64>()
        + (1..month).map(|month| days_in(year, month)).sum::<u64>()
        + (day - 1);
    let seconds = days * DAY + hour * 3600 + minute * 60 + second;
    let nanos = match fraction {
        None => 0,
        Some(digits) if (1..=9).contains(&digits.len()) => {
            u32::try_from(number(digits)?).ok()? * 10_u32.pow(9 - u32::try_from(digits.len()).ok()?)
        }
        Some(_) => return None,
    };
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

/// Formats a date in whole seconds; `None` before 1970 and after 9999.
pub fn format_date(date: SystemTime) -> Option<String> {
    let seconds = date.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    let (mut days, time) = (seconds / DAY, seconds % DAY);
    let mut year = 1970;
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        (days, year) = (days - length, year + 1);
        if year > 9999 {
            return None;
        }
    }
    let mut month = 1;
    while days >= days_in(year, month) {
        (days, month) = (days - days_in(year, month), month + 1);
    }
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    Some(format!("{year:04}{month:02}{:02}{hour:02}{minute:02}{second:02}", days + 1))
}

fn leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in(year: u64, month: u64) -> u64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap(year) => 29,
        2 => 28,
        _ => 31,
    }
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
