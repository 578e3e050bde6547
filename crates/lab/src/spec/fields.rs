//! The fields of a path's specification by name: set from text, and serialised.

use std::fmt::Display;
use std::str::FromStr;

use longhaul_core::units::{Bytes, Rtt};
use serde::{Serialize, Serializer};
use serde_json::json;

use crate::error::LabError;

use super::{PacketShare, PathSpec, QueueLimit, RateSchedule};

impl PathSpec {
    /// The names of its fields in scenarios.
    pub const KEYS: [&'static str; 25] = [
        "rate",
        "rtt",
        "delay",
        "queue",
        "loss",
        "gemodel",
        "aqm",
        "background",
        "cross_flows",
        "ack_compression",
        "hosts",
        "congestion",
        "seed",
        "mtu",
        "rate_steps",
        "trace",
        "jitter",
        "reorder",
        "duplicate",
        "corrupt",
        "ecn",
        "up",
        "down",
        "second",
        "pairs",
    ];

    /// Sets the field `key` from text, such as "rtt" from "200ms".
    ///
    /// Does not check combinations of fields; see [`validate`](Self::validate).
    ///
    /// # Errors
    /// Fails on an unknown key or an invalid value; names both, and what is valid.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), LabError> {
        match Self::KEYS.into_iter().find(|known| *known == key) {
            Some(what @ "rate") => self.rate = Some(read(what, text)?),
            Some(what @ "rtt") => self.rtt = read::<Rtt>(what, text)?,
            Some(what @ "queue") => self.queue = Some(read::<QueueLimit>(what, text)?),
            Some(what @ "delay") => self.rtt = Rtt::new(read::<Rtt>(what, text)?.get().saturating_mul(2)),
            Some(what @ "loss") => self.loss = read::<PacketShare>(what, text)?.get(),
            Some(what @ "gemodel") => self.gemodel = read(what, text)?,
            Some(what @ "aqm") => self.aqm = read(what, text)?,
            Some(what @ "background") => self.background = read(what, text)?,
            Some(what @ "cross_flows") => self.cross_flows = read(what, text)?,
            Some(what @ "ack_compression") => self.ack_compression = read(what, text)?,
            Some(what @ "hosts") => self.hosts = read(what, text)?,
            Some("congestion") => self.congestion = text.to_owned(),
            Some(what @ "seed") => self.seed = number(what, text, "1")?,
            Some(what @ "rate_steps") => self.set_schedule(read(what, text)?),
            Some(what @ "trace") => {
                let trace = RateSchedule::load_trace(text.as_ref());
                self.set_schedule(trace.map_err(|error| LabError::Spec { what, why: error.to_string() })?);
            }
            Some(what @ "jitter") => self.jitter = read(what, text)?,
            Some(what @ "reorder") => self.reorder = read(what, text)?,
            Some(what @ "duplicate") => self.duplicate = read(what, text)?,
            Some(what @ "corrupt") => self.corrupt = read(what, text)?,
            Some(what @ "ecn") => self.ecn = truth(what, text)?,
            Some(what @ "up") => self.up = read(what, text)?,
            Some(what @ "down") => self.down = read(what, text)?,
            Some(what @ "second") => self.second = read(what, text)?,
            Some(what @ "pairs") => self.pairs = read(what, text)?,
            Some(what @ "mtu") => self.mtu = Bytes::new(number(what, text, "1500")?),
            _ => {
                let why = format!("unknown field `{key}`, expected one of {}", Self::KEYS.join(", "));
                return Err(LabError::Spec { what: "path", why });
            }
        }
        Ok(())
    }

    /// Sets the schedule of the rate; if no rate is set, `rate` becomes the schedule's nominal rate.
    pub fn set_schedule(&mut self, schedule: RateSchedule) {
        self.rate = self.rate.or(schedule.nominal());
        self.schedule = schedule;
    }
}

fn truth(what: &'static str, text: &str) -> Result<bool, LabError> {
    match text {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => Err(LabError::Spec { what, why: format!("'{text}' is neither yes nor no") }),
    }
}

fn read<T: FromStr<Err: Display>>(what: &'static str, text: &str) -> Result<T, LabError> {
    text.parse().map_err(|error: T::Err| LabError::Spec { what, why: error.to_string() })
}

fn number<T: FromStr>(what: &'static str, text: &str, example: &str) -> Result<T, LabError> {
    let why = || format!("'{text}' is not a number as it should be: write one like {example}");
    text.parse().map_err(|_| LabError::Spec { what, why: why() })
}

/// Field names include units; fields that do not apply are null.
impl Serialize for PathSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (bytes, packets) = match self.queue_limit() {
            Some(QueueLimit::Bytes(bytes)) => (Some(bytes.get()), None),
            Some(QueueLimit::Packets(packets)) => (None, Some(packets)),
            None => (None, None),
        };
        let object = json!({
            "rate_bps": self.rate.map(|rate| rate.as_bits_per_sec()),
            "rtt_s": self.rtt.get().as_secs_f64(),
            "queue_bytes": bytes,
            "queue_packets": packets,
            "loss": self.loss,
            "gemodel": self.gemodel.to_string(),
            "aqm": self.aqm.to_string(),
            "background": self.background.to_string(),
            "cross_flows": self.cross_flows.to_string(),
            "ack_compression_s": self.ack_compression.get().as_secs_f64(),
            "hosts": self.hosts.to_string(),
            "congestion": self.congestion,
            "seed": self.seed,
            "mtu_bytes": self.mtu.get(),
            "rate_schedule": self.schedule.to_string(),
            "jitter_s": self.jitter.get().as_secs_f64(),
            "reorder": self.reorder.to_string(),
            "duplicate": self.duplicate.get(),
            "corrupt": self.corrupt.get(),
            "ecn": self.ecn,
            "up": self.up.to_string(),
            "down": self.down.to_string(),
            "second": self.second.to_string(),
            "pairs": self.pairs.to_string(),
        });
        object.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_sets_its_value() {
        let mut spec = PathSpec::default();
        let trace = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&trace, "1\n").unwrap();
        let texts = [
            "10Gbit",
            "100ms",
            "100ms",
            "1000packets",
            "1%",
            "0.1%,10%",
            "red:max_p=0.02",
            "20%@8s",
            "4@5s..20s",
            "5ms",
            "tuned",
            "bbr",
            "7",
            "9000",
            "1Mbit@0s,2Mbit@5s",
            trace.path().to_str().unwrap(),
            "1ms",
            "1%,2ms",
            "2%",
            "3%",
            "yes",
            "rate=1Mbit",
            "loss=1%",
            "rate=2Mbit",
            "10ms,20ms@first",
        ];
        for (key, text) in PathSpec::KEYS.into_iter().zip(texts) {
            spec.set(key, text).unwrap();
        }
        assert_eq!(
            serde_json::to_value(&spec).unwrap(),
            json!({
                "rate_bps": 10_000_000_000_u64, "rtt_s": 0.2, "queue_bytes": null, "queue_packets": 1000,
                "loss": 0.01, "gemodel": "0.001,0.1,1,0", "aqm": "red:min_th=5,max_th=15,max_p=0.02,w_q=0.002,gentle=yes", "background": "20%@8s", "cross_flows": "4@5s..20s", "ack_compression_s": 0.005, "hosts": "tuned", "congestion": "bbr", "seed": 7,
                "mtu_bytes": 9000, "rate_schedule": format!("trace {}", trace.path().display()), "jitter_s": 0.001,
                "reorder": "1%,0.002s", "duplicate": 0.02, "corrupt": 0.03, "ecn": true, "up": "rate=1Mbit",
                "down": "loss=1%", "second": "rate=2Mbit", "pairs": "0.01s,0.02s@first"
            })
        );
    }

    #[test]
    fn errors_name_value_and_alternatives() {
        for (key, text, expected) in [
            ("rtt", "20", "rtt: '20' is not a time: write a unit"),
            ("rate", "fast", "rate: 'fast' is not a rate"),
            ("loss", "some", "loss: 'some' is no share of packets: write one like 0.1%"),
            ("gemodel", "2", "gemodel: '2' is no loss model: 2 is not between 0 and 1"),
            ("seed", "-1", "seed: '-1' is not a number"),
            ("aqm", "pie", "aqm: 'pie' is no way to choose what to drop: 'pie' is not one of droptail, red"),
            ("ecn", "maybe", "ecn: 'maybe' is neither yes nor no"),
            ("trace", "/does/not/exist", "trace: '/does/not/exist' is no schedule of rates"),
            ("background", "most", "background: 'most' is no background traffic"),
            ("ack_compression", "5", "ack_compression: '5' is not a time: write a unit"),
            (
                "cross_flows",
                "many",
                "cross_flows: 'many' are no cross flows: 'many' is not a number of flows",
            ),
            ("loss", "0.05", "write 5% for this share, or 0.05%"),
            ("latency", "1ms", "unknown field `latency`, expected one of rate, rtt, delay, queue"),
        ] {
            let error = PathSpec::default().set(key, text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
