//! `--record`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use longhaul_core::failure::Failure;
use longhaul_core::units::{Rate, Rtt};
use longhaul_engine::sampling::SampleInterval;
use longhaul_scope::record::Recorder;
use longhaul_scope::record::schema::Side;

/// Options of recording.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Record all that can be measured on the way, one JSON object a line
    ///
    /// An existing record is replaced once the transfer's file is opened, or the server has
    /// started; any other file is kept. It grows by about 200 kB a second for each connection on
    /// which data moves, at 10ms. Several files of one run share the record.
    #[arg(long = "record", value_name = "FILE", help_heading = "Output")]
    file: Option<PathBuf>,

    /// Measure for the record this often, from 1ms to 10s [default: 10ms]
    ///
    /// Without this option the interval grows if sampling would take more than a hundredth of a
    /// core.
    #[arg(
        long = "record-interval",
        value_name = "TIME",
        requires = "file",
        value_parser = interval,
        help_heading = "Output",
        hide_short_help = true
    )]
    interval: Option<Duration>,
}

const DEFAULT_INTERVAL: Duration = Duration::from_millis(10);

impl RecordArgs {
    /// Returns the record's path, if set.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns the sampling interval, if a record is requested.
    pub(crate) fn interval(&self) -> Option<SampleInterval> {
        let default = || SampleInterval::sparing(DEFAULT_INTERVAL);
        self.file.as_ref().map(|_| self.interval.map_or_else(default, SampleInterval::new))
    }

    /// Begins the record, if requested; `what` must not contain secrets, and `pace` is that of what
    /// is sent.
    pub(crate) fn begin(
        &self,
        side: Side,
        what: &str,
        pace: Option<Rate>,
    ) -> Result<Option<Recorder>, Failure> {
        let interval = self.interval.unwrap_or(DEFAULT_INTERVAL);
        self.file.as_ref().map(|file| Recorder::create(file, side, what, pace, interval)).transpose()
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    const RANGE: std::ops::RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);
    match text.parse::<Rtt>() {
        Ok(time) if RANGE.contains(&time.get()) => Ok(time.get()),
        Ok(_) => Err("write a time from 1ms to 10s".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns whether two paths refer to one file, or would once it is created.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    matches!((place(one), place(other)), (Ok(one), Ok(other)) if one == other)
}

/// Returns whether a file lies in a directory or below it, or would once it is created.
pub(crate) fn is_below(file: &Path, directory: &Path) -> bool {
    matches!((place(file), directory.canonicalize()), (Ok(file), Ok(directory)) if file.starts_with(&directory))
}

fn place(path: &Path) -> std::io::Result<PathBuf> {
    path.canonicalize().or_else(|_| {
        let path = std::path::absolute(path)?;
        let name = path.file_name().unwrap_or_default();
        Ok(path.parent().unwrap_or(&path).canonicalize()?.join(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_to_one_file_are_equal_and_the_interval_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        assert!(is_same(&file, &dir.path().join("./file")) && !is_same(&file, &link));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(is_same(&file, &link));
        assert!(is_below(&dir.path().join("new"), dir.path()));
        assert!(!is_same(Path::new("none/file"), Path::new("none/file2")));
        for text in ["0.9ms", "11s", "0s", "10", "often"] {
            assert!(interval(text).is_err(), "{text}");
        }
        assert_eq!(interval("1ms"), Ok(Duration::from_millis(1)));
        assert_eq!(interval("10s"), Ok(Duration::from_secs(10)));
    }
}
