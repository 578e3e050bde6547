//! Reads a scenario's TOML; refuses what it does not know, with the line.

use std::collections::HashSet;
use std::fmt::Display;
use std::fs;
use std::num::{NonZeroU16, NonZeroU32};
use std::path::Path;
use std::str::FromStr;

use longhaul_core::units::{Bytes, Rate, Rtt};
use serde::{Deserialize, Deserializer};

use super::{Far, Run, Scenario};
use crate::error::LabError;
use crate::spec::{Aqm, Hosts, PathSpec, QueueLimit};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawScenario {
    name: Option<String>,
    path: RawPath,
    far: Option<RawFar>,
    run: Vec<RawRun>,
}

/// As `PathSpec`, each value as text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawPath {
    #[serde(deserialize_with = "text")]
    rate: Option<Rate>,
    #[serde(deserialize_with = "text")]
    rtt: Option<Rtt>,
    #[serde(deserialize_with = "text")]
    queue: Option<QueueLimit>,
    #[serde(deserialize_with = "text")]
    aqm: Option<Aqm>,
    #[serde(deserialize_with = "text")]
    hosts: Option<Hosts>,
    loss: f64,
    congestion: String,
    seed: u64,
    mtu: u64,
}

impl Default for RawPath {
    fn default() -> Self {
        let PathSpec { loss, congestion, seed, mtu, .. } = PathSpec::default();
        Self {
            rate: None,
            rtt: None,
            queue: None,
            aqm: None,
            hosts: None,
            loss,
            congestion,
            seed,
            mtu: mtu.get(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFar {
    command: String,
    port: Option<NonZeroU16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRun {
    name: String,
    command: String,
    #[serde(default = "once")]
    repeat: NonZeroU32,
    /// A time, written as a round trip's is.
    #[serde(default, deserialize_with = "text")]
    timeout: Option<Rtt>,
}

fn once() -> NonZeroU32 {
    NonZeroU32::MIN
}

/// Reads a quantity from a string; the TOML reader adds the line to the error.
fn text<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: Display>,
{
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// Fails where the file cannot be read, is not TOML, holds a key that is not known or a value that
    /// is none; names the file, and the line where there is one.
    pub fn load(path: &Path) -> Result<Self, LabError> {
        let text =
            fs::read_to_string(path).map_err(|cause| LabError::Read { path: path.to_owned(), cause })?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&text, &stem).map_err(|why| LabError::Scenario { path: path.to_owned(), why })
    }

    fn parse(text: &str, default_name: &str) -> Result<Self, String> {
        let raw: RawScenario = toml::from_str(text).map_err(|error| error.to_string())?;
        let path = raw.path;
        let path = PathSpec {
            rate: path.rate,
            rtt: path.rtt.unwrap_or_default(),
            queue: path.queue,
            loss: path.loss,
            aqm: path.aqm.unwrap_or_default(),
            hosts: path.hosts.unwrap_or_default(),
            congestion: path.congestion,
            seed: path.seed,
            mtu: Bytes::new(path.mtu),
        };
        path.validate().map_err(|error| format!("[path] {error}"))?;
        if raw.run.is_empty() {
            return Err("there is no [[run]]".to_owned());
        }
        let mut names = HashSet::new();
        for run in &raw.run {
            check_name(&run.name)?;
            if !names.insert(&run.name) {
                return Err(format!("two [[run]]s have the name '{}'", run.name));
            }
        }
        let name = raw.name.unwrap_or_else(|| default_name.to_owned());
        check_name(&name)?;
        let run = |run: RawRun| Run {
            name: run.name,
            command: run.command,
            repeat: run.repeat,
            timeout: run.timeout.map(Rtt::get),
        };
        let far = |far: RawFar| Far { command: far.command, port: far.port.map(NonZeroU16::get) };
        Ok(Self { name, path, far: raw.far.map(far), runs: raw.run.into_iter().map(run).collect() })
    }
}

/// Names become file names.
fn check_name(name: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.starts_with('.') || !name.bytes().all(fits) {
        return Err(format!("the name '{name}' is not made of letters, digits, '-', '_' and '.'"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const GOOD: &str = r#"
        [path]
        rate = "1Gbit"
        rtt = "20ms"
        queue = "1000p"
        loss = 0.001
        hosts = "tuned"
        congestion = "bbr"
        [far]
        command = "serve"
        port = 80
        [[run]]
        name = "one"
        command = "true"
        repeat = 2
        timeout = "90s"
        [[run]]
        name = "two"
        command = "false"
    "#;

    #[test]
    fn reads_a_scenario_and_alternates_its_runs() {
        let scenario = Scenario::parse(GOOD, "file").unwrap();
        assert_eq!(scenario.name, "file");
        assert_eq!(scenario.path.queue, Some(QueueLimit::Packets(1000)));
        assert_eq!((scenario.path.hosts, scenario.path.congestion.as_str()), (Hosts::Tuned, "bbr"));
        assert_eq!(scenario.path.mtu, Bytes::new(1500));
        assert_eq!(scenario.far.as_ref().and_then(|far| far.port), Some(80));
        assert_eq!(scenario.runs[0].timeout, Some(Duration::from_secs(90)));
        let order: Vec<_> = scenario.schedule().map(|(round, run)| (round, run.name.as_str())).collect();
        assert_eq!(order, [(1, "one"), (1, "two"), (2, "one")]);
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        for (from, to, expected) in [
            ("rtt =", "delay =", "unknown field `delay`"),
            ("\"20ms\"", "\"20\"", "'20' is not a time"),
            ("\"1Gbit\"", "1000", "line 3"),
            ("0.001", "2.0", "[path] loss: 2"),
            ("\"tuned\"", "\"fast\"", "'fast' is not one of stock, tuned"),
            ("repeat = 2", "repeat = 0", "repeat"),
            ("port = 80", "port = 0", "port"),
            ("\"90s\"", "\"soon\"", "'soon' is not a time"),
            ("\"two\"", "\"one\"", "two [[run]]s have the name 'one'"),
            ("\"two\"", "\"../two\"", "'../two' is not made of"),
            ("[path]", "[paths]", "paths"),
        ] {
            let error = Scenario::parse(&GOOD.replace(from, to), "file").unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
