//! Plans the queue of transfers: which transfers may run, which wait, and until when.
//!
//! Wall clocks jump, when they are set and at changes of daylight saving time. No function here
//! stores a time of day; each call depends only on the time passed to it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::proto::number;
use crate::units::Rate;

/// Seconds per day without leap seconds.
const DAY: u32 = 24 * 60 * 60;
/// The longest time before a failed transfer is retried.
pub const LONGEST_RETRY: Duration = Duration::from_secs(600);
/// The time before the first retry of a failed transfer.
const FIRST_RETRY: Duration = Duration::from_secs(5);

/// A set of weekdays; bit 0 is Sunday.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Days(u8);

/// A time of day in whole minutes, as `08:30`; `24:00` is the end of the day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TimeOfDay(u16);

/// The text is neither days nor a time of day.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseWindowError {
    /// The days are malformed.
    #[error("'{0}' names no days: write daily, or days as in mon-fri,sun")]
    Days(String),
    /// The time is malformed.
    #[error("'{0}' is not a time of day: write it as in 08:30")]
    Time(String),
}

const NAMES: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl FromStr for Days {
    type Err = ParseWindowError;

    fn from_str(text: &str) -> Result<Self, ParseWindowError> {
        let wrong = || ParseWindowError::Days(text.to_owned());
        let index = |name: &str| NAMES.iter().position(|known| *known == name).ok_or_else(wrong);
        let lower = text.trim().to_ascii_lowercase();
        if matches!(&lower[..], "daily" | "sun-sat") {
            return Ok(Self(0x7f));
        }
        let mut days = 0;
        for part in lower.split(',').map(str::trim) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (index(first)?, index(last)?);
            // fri-mon wraps around the end of the week.
            let count = (last + 7 - first) % 7;
            (0..=count).for_each(|step| days |= 1 << ((first + step) % 7));
        }
        Ok(Self(days))
    }
}

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0x7f {
            return f.write_str("daily");
        }
        let names: Vec<_> =
            NAMES.iter().enumerate().filter(|(day, _)| self.has(*day as u8)).map(|(_, name)| *name).collect();
        f.write_str(&names.join(","))
    }
}

impl Days {
    fn has(self, weekday: u8) -> bool {
        self.0 & (1 << (weekday % 7)) != 0
    }
}

impl FromStr for TimeOfDay {
    type Err = ParseWindowError;

    fn from_str(text: &str) -> Result<Self, ParseWindowError> {
        let parse = || {
            let (hour, minute) = text.trim().split_once(':')?;
            let (hour, minute) = (number::<u16>(hour)?, number::<u16>(minute)?);
            let minutes = hour.checked_mul(60)?.checked_add(minute)?;
            (minute < 60 && minutes <= 24 * 60).then_some(Self(minutes))
        };
        parse().ok_or_else(|| ParseWindowError::Time(text.to_owned()))
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

macro_rules! as_text {
    ($($name:ty),*) => {$(
        impl TryFrom<String> for $name {
            type Error = ParseWindowError;
            fn try_from(text: String) -> Result<Self, ParseWindowError> {
                text.parse()
            }
        }
        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    )*};
}
as_text!(Days, TimeOfDay);

/// A weekly period with its own limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The days on which the window begins.
    pub days: Days,
    /// The time at which the window begins.
    pub from: TimeOfDay,
    /// The time at which the window ends; on the next day if not later than `from`.
    pub to: TimeOfDay,
    /// The limits within the window.
    pub limits: Limits,
}

/// The limits of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest number of concurrent transfers; 0 for none.
    pub concurrent: usize,
    /// The highest total rate; `None` for no limit.
    pub rate: Option<Rate>,
}

/// A local time within the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeekTime {
    /// Days since Sunday.
    pub weekday: u8,
    /// Seconds since midnight.
    pub second: u32,
}

impl Window {
    /// Returns whether `now` is within the window.
    fn holds(&self, now: WeekTime) -> bool {
        let (from, to) = (u32::from(self.from.0) * 60, u32::from(self.to.0) * 60);
        let second = now.second.min(DAY - 1);
        let length = if to > from { to - from } else { DAY - from + to };
        let began_today = self.days.has(now.weekday).then(|| second.checked_sub(from)).flatten();
        let began_yesterday = self.days.has(now.weekday + 6).then_some(second + DAY - from);
        began_today.into_iter().chain(began_yesterday).any(|since| since < length)
    }
}

/// Returns the limits at `now`: those of the first window that contains `now`, or else `usual`.
pub fn allowed(usual: Limits, windows: &[Window], now: WeekTime) -> Limits {
    windows.iter().find(|window| window.holds(now)).map_or(usual, |window| window.limits)
}

/// A running transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Active {
    /// The number of the transfer.
    pub id: i64,
    /// The priority; transfers with a higher one run first.
    pub priority: i64,
    /// The position among transfers of equal priority; the lowest runs first.
    pub position: i64,
    /// Whether the transfer was requested to stop but has not ended, so that it still counts as
    /// running.
    pub stopping: bool,
}

/// The transfers to start and to stop now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The number of further transfers that may start.
    pub start: usize,
    /// The transfers to stop and return to the queue, the least urgent first.
    pub stop: Vec<i64>,
}

/// Plans for `concurrent` running transfers. A stopping transfer counts until it has ended.
pub fn plan(concurrent: usize, active: &[Active]) -> Plan {
    let start = concurrent.saturating_sub(active.len());
    let mut running: Vec<_> = active.iter().filter(|active| !active.stopping).collect();
    running.sort_by_key(|active| (active.priority, std::cmp::Reverse(active.position)));
    let surplus = running.len().saturating_sub(concurrent);
    Plan { start, stop: running[..surplus].iter().map(|active| active.id).collect() }
}

/// Returns the time before retry number `attempt`, from 0: 5 s, tripled for each further retry, at
/// most 10 minutes.
pub fn retry_delay(attempt: u32) -> Duration {
    FIRST_RETRY.saturating_mul(3_u32.saturating_pow(attempt)).min(LONGEST_RETRY)
}

/// Returns whether a retry planned for `retry_at` is due at `now`, both in seconds since 1970.
///
/// A retry further in the future than the longest delay was planned before the clock was set back,
/// and is due.
pub fn is_retry_due(retry_at: i64, now: i64) -> bool {
    retry_at <= now || retry_at.saturating_sub(now) > LONGEST_RETRY.as_secs().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(days: &str, from: &str, to: &str, concurrent: usize) -> Window {
        let limits = Limits { concurrent, rate: None };
        Window { days: days.parse().unwrap(), from: from.parse().unwrap(), to: to.parse().unwrap(), limits }
    }

    fn at(weekday: u8, hour: u32, minute: u32) -> WeekTime {
        WeekTime { weekday, second: hour * 3600 + minute * 60 }
    }

    #[test]
    fn window_begins_with_its_start_ends_before_its_end_and_belongs_to_the_day_of_its_start() {
        let concurrent =
            |windows: &[Window], now| allowed(Limits { concurrent: 3, rate: None }, windows, now).concurrent;
        let work = [window("mon-fri", "08:00", "18:00", 1), window("daily", "17:00", "19:00", 2)];
        // The limits follow from the time alone, so that the clock may jump.
        for (now, expected) in
            [(at(1, 7, 59), 3), (at(1, 8, 0), 1), (at(5, 17, 59), 1), (at(5, 18, 0), 2), (at(6, 12, 0), 3)]
        {
            assert_eq!(concurrent(&work, now), expected, "{now:?}");
        }
        let night = [window("sat", "22:00", "06:00", 9)];
        for (now, expected) in
            [(at(6, 23, 0), 9), (at(0, 5, 59), 9), (at(6, 5, 0), 3), (at(0, 6, 0), 3), (at(0, 23, 0), 3)]
        {
            assert_eq!(concurrent(&night, now), expected, "{now:?}");
        }
        let always = [window("daily", "00:00", "00:00", 9)];
        assert!((0..7).all(|day| concurrent(&always, at(day, 13, 7)) == 9));
        // A leap second and an impossible time count as the last second of the day.
        assert_eq!(concurrent(&work[..1], WeekTime { weekday: 2, second: 90_000 }), 3);
    }

    #[test]
    fn retry_is_due_after_its_delay_or_when_the_clock_was_set_back() {
        assert!(is_retry_due(100, 100) && is_retry_due(100, 5000) && !is_retry_due(100, 99));
        let year = 365 * 86_400;
        assert!(is_retry_due(2 * year, year) && is_retry_due(i64::MAX, i64::MIN));
        let delays: Vec<_> = (0..6).map(|attempt| retry_delay(attempt).as_secs()).collect();
        assert_eq!(delays, [5, 15, 45, 135, 405, 600]);
        assert_eq!(retry_delay(u32::MAX), LONGEST_RETRY);
    }

    #[test]
    fn least_urgent_transfers_stop_first_and_stopping_ones_count() {
        let active = |id, priority, position, stopping| Active { id, priority, position, stopping };
        let running = [active(1, 0, 10, false), active(2, 5, 30, false), active(3, 0, 20, false)];
        assert_eq!(plan(5, &running), Plan { start: 2, stop: vec![] });
        assert_eq!(plan(1, &running), Plan { start: 0, stop: vec![3, 1] });
        assert_eq!(plan(0, &running).stop, [3, 1, 2]);
        let stopping = [active(1, 0, 10, true), active(2, 5, 30, false)];
        assert_eq!(plan(1, &stopping), Plan::default());
        assert_eq!(plan(2, &stopping), Plan::default());
    }

    #[test]
    fn days_and_times_are_parsed_and_formatted() {
        let days = [("mon-fri", "mon,tue,wed,thu,fri"), ("Daily", "daily"), ("fri-mon", "sun,mon,fri,sat")];
        for (text, shown) in days.into_iter().chain([("sun, wed", "sun,wed")]) {
            assert_eq!(text.parse::<Days>().unwrap().to_string(), shown);
            assert_eq!(shown.parse::<Days>(), text.parse::<Days>());
        }
        for text in ["", "mon-", "xyz", "mon,,tue"] {
            assert!(text.parse::<Days>().is_err(), "{text}");
        }
        assert_eq!("8:05".parse::<TimeOfDay>().unwrap().to_string(), "08:05");
        for text in ["24:01", "12:60", "12", "-1:00", "", "1:2:3", "+1:00"] {
            assert!(text.parse::<TimeOfDay>().is_err(), "{text}");
        }
    }
}
