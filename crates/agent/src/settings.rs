//! The user's settings of the queue.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;

use longhaul_core::queue_admission::{Limits, ParseWindowError, Window};
use longhaul_core::units::Rate;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::QueueError;
use crate::user_dirs;

/// The default number of concurrent transfers: small, because each one fills its path alone.
const CONCURRENT: usize = 3;
/// The maximum number of concurrent transfers: more would only compete.
const MAX_CONCURRENT: usize = 64;
/// The default number of retries after a temporary failure.
const RETRIES: u32 = 8;
/// The minimum rate limit in bits per second: a byte per second.
const MIN_LIMIT: u64 = 8;

/// The settings of the whole queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The number of concurrent transfers.
    #[schema(minimum = 1, maximum = 64)]
    pub concurrent: usize,
    /// The rate limit of all transfers together, in bits per second.
    #[schema(minimum = 8)]
    pub limit_bps: Option<u64>,
    /// The default directory of files.
    #[schema(value_type = String)]
    pub directory: PathBuf,
    /// Parts of the week with separate limits; the first that applies is used.
    pub schedule: Vec<ScheduleEntry>,
    /// The number of retries after a temporary failure.
    pub retries: u32,
}

/// The addresses at which the agent serves, and its farm; the next agent of this user uses them
/// again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Doors {
    /// The address of the dashboard, if the user chose one.
    pub(crate) listen: Option<SocketAddr>,
    /// Whether it also serves aria2's JSON-RPC.
    pub(crate) aria2_rpc: bool,
    /// The farm, if it is in one.
    pub(crate) farm: Option<FarmSettings>,
}

/// The farm of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarmSettings {
    /// The address of the database, without a password.
    pub url: String,
    /// The time after which the transfers of an agent that does not report are given to others, in
    /// seconds.
    pub lease_seconds: u64,
}

/// A part of the week with separate limits, in local time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleEntry {
    /// The days on which it starts, such as `mon-fri,sun` or `daily`.
    pub days: String,
    /// The start time, such as `08:00`.
    pub from: String,
    /// The end time; on the next day if not later than the start.
    pub to: String,
    /// The rate limit of all transfers together within it, in bits per second.
    #[serde(default)]
    #[schema(minimum = 8)]
    pub limit_bps: Option<u64>,
    /// The number of concurrent transfers within it; 0 stops all, null leaves it as it is outside.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 64)]
    pub concurrent: Option<usize>,
}

/// Changes of the settings; absent fields stay unchanged. All changes together are stored: what was
/// never set keeps the default of the day.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SettingsPatch {
    /// The number of concurrent transfers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 64)]
    pub concurrent: Option<usize>,
    /// The rate limit of all transfers together, in bits per second; null removes it.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 8)]
    pub limit_bps: Option<Option<u64>>,
    /// The default directory of files; null means that of xdg-user-dirs.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub directory: Option<Option<PathBuf>>,
    /// Parts of the week with separate limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Vec<ScheduleEntry>>,
    /// The number of retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
}

impl SettingsPatch {
    /// Returns these changes, and then those of `later`.
    pub(crate) fn and_then(self, later: Self) -> Self {
        Self {
            concurrent: later.concurrent.or(self.concurrent),
            limit_bps: later.limit_bps.or(self.limit_bps),
            directory: later.directory.or(self.directory),
            schedule: later.schedule.or(self.schedule),
            retries: later.retries.or(self.retries),
        }
    }
}

/// Rejects a rate limit that is too low.
pub(crate) fn check_limit(limit_bps: Option<u64>) -> Result<(), QueueError> {
    if limit_bps.is_some_and(|rate| rate < MIN_LIMIT) {
        let why =
            format!("the rate limit must be at least {MIN_LIMIT} bit/s: below, nothing would ever arrive");
        return Err(QueueError::Invalid(why));
    }
    Ok(())
}

/// Distinguishes an explicit null from an absent value.
pub(crate) fn given<'de, D, T>(from: D) -> Result<Option<Option<T>>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(from).map(Some)
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrent: CONCURRENT,
            limit_bps: None,
            directory: default_directory(),
            schedule: Vec::new(),
            retries: RETRIES,
        }
    }
}

fn default_directory() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let directory = user_dirs::downloads(home.as_deref());
    directory.or_else(|| Some(home?.join("Downloads"))).unwrap_or_else(|| "/tmp".into())
}

impl Settings {
    /// Returns the settings with the changes of `patch`.
    ///
    /// # Errors
    /// [`QueueError::Invalid`].
    pub(crate) fn with(self, patch: SettingsPatch) -> Result<Self, QueueError> {
        let changed = Self {
            concurrent: patch.concurrent.unwrap_or(self.concurrent),
            limit_bps: patch.limit_bps.unwrap_or(self.limit_bps),
            directory: match patch.directory {
                None => self.directory,
                Some(directory) => directory.unwrap_or_else(default_directory),
            },
            schedule: patch.schedule.unwrap_or(self.schedule),
            retries: patch.retries.unwrap_or(self.retries),
        };
        let invalid = |message: String| Err(QueueError::Invalid(message));
        if changed.concurrent == 0 || changed.concurrent > MAX_CONCURRENT {
            return invalid(format!("the number of concurrent transfers must be from 1 to {MAX_CONCURRENT}"));
        }
        check_limit(changed.limit_bps)?;
        if !changed.directory.is_absolute() {
            return invalid(format!("the directory {} is not an absolute path", changed.directory.display()));
        }
        changed.windows()?;
        Ok(changed)
    }

    /// Returns the limits that apply outside the schedule.
    pub(crate) fn usual(&self) -> Limits {
        Limits { concurrent: self.concurrent, rate: self.limit_bps.map(Rate::bits_per_sec) }
    }

    /// Returns the schedule.
    ///
    /// # Errors
    /// [`QueueError::Invalid`].
    pub(crate) fn windows(&self) -> Result<Vec<Window>, QueueError> {
        let window = |entry: &ScheduleEntry| {
            let concurrent = entry.concurrent.unwrap_or(self.concurrent);
            let failed = |error: &dyn Display| QueueError::Invalid(format!("schedule: {error}"));
            if concurrent > MAX_CONCURRENT {
                return Err(failed(&format_args!("at most {MAX_CONCURRENT} concurrent transfers")));
            }
            check_limit(entry.limit_bps).map_err(|error| failed(&error))?;
            let failed = |error: ParseWindowError| failed(&error);
            let limits = Limits { concurrent, rate: entry.limit_bps.map(Rate::bits_per_sec) };
            Ok(Window {
                days: entry.days.parse().map_err(failed)?,
                from: entry.from.parse().map_err(failed)?,
                to: entry.to.parse().map_err(failed)?,
                limits,
            })
        };
        self.schedule.iter().map(window).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patch_changes_given_fields_and_refuses_invalid_values() {
        let patch = |text: &str| serde_json::from_str::<SettingsPatch>(text).unwrap();
        let set = patch(r#"{"limit_bps": 8000000, "concurrent": 2}"#).and_then(patch(r#"{"retries": 1}"#));
        assert_eq!(crate::json(&set), r#"{"concurrent":2,"limit_bps":8000000,"retries":1}"#);
        let limited = Settings::default().with(set.clone()).unwrap();
        assert_eq!((limited.limit_bps, limited.concurrent), (Some(8_000_000), 2));
        let limited = limited.with(patch(r#"{"directory": "/d"}"#)).unwrap();
        let freed = set.and_then(patch(r#"{"limit_bps": null, "directory": null}"#));
        assert_eq!(
            limited.with(patch(&crate::json(&freed))).unwrap().directory,
            Settings::default().directory
        );
        assert_eq!(Settings::default().with(freed).unwrap().limit_bps, None);
        let part = r#"{"concurrent": 9, "schedule": [{"days": "mon", "from": "08:00", "to": "09:00"}]}"#;
        let part = Settings::default().with(patch(part)).unwrap();
        assert_eq!(part.windows().unwrap()[0].limits.concurrent, 9);
        for text in [
            r#"{"concurrent": 0}"#,
            r#"{"concurrent": 1000}"#,
            r#"{"limit_bps": 1}"#,
            r#"{"directory": "relative"}"#,
            r#"{"schedule": [{"days": "someday", "from": "08:00", "to": "09:00"}]}"#,
            r#"{"schedule": [{"days": "mon", "from": "25:00", "to": "09:00"}]}"#,
        ] {
            assert!(Settings::default().with(patch(text)).is_err(), "{text}");
        }
        assert!(serde_json::from_str::<SettingsPatch>(r#"{"colour": 1}"#).is_err());
    }
}
