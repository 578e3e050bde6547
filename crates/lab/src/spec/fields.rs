//! The fields of a path's specification by name: set from text, and read as numbers.

use std::fmt::Display;
use std::str::FromStr;

use longhaul_core::units::{Bytes, Rtt};
use serde::{Serialize, Serializer};
use serde_json::json;

use crate::error::LabError;

use super::{PathSpec, QueueLimit};

impl PathSpec {
    /// The names of its values, as scenarios write them.
    pub const KEYS: [&'static str; 13] = [
        "rate",
        "rtt",
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
    ];

    /// Sets the value `key` from its text, as "rtt" from "200ms".
    ///
    /// Whether the values make a path together, [`validate`](Self::validate) says.
    ///
    /// # Errors
    /// Fails where there is no such key, or the text is no value of it; names both, and what would be.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), LabError> {
        match Self::KEYS.into_iter().find(|known| *known == key) {
            Some(what @ "rate") => self.rate = Some(read(what, text)?),
            Some(what @ "rtt") => self.rtt = read::<Rtt>(what, text)?,
            Some(what @ "queue") => self.queue = Some(read::<QueueLimit>(what, text)?),
            Some(what @ "loss") => self.loss = number(what, text, "0.001")?,
            Some(what @ "gemodel") => self.gemodel = read(what, text)?,
            Some(what @ "aqm") => self.aqm = read(what, text)?,
            Some(what @ "background") => self.background = read(what, text)?,
            Some(what @ "cross_flows") => self.cross_flows = read(what, text)?,
            Some(what @ "ack_compression") => self.ack_compression = read(what, text)?,
            Some(what @ "hosts") => self.hosts = read(what, text)?,
            Some("congestion") => self.congestion = text.to_owned(),
            Some(what @ "seed") => self.seed = number(what, text, "1")?,
            Some(what @ "mtu") => self.mtu = Bytes::new(number(what, text, "1500")?),
            _ => {
                let why = format!("unknown field `{key}`, expected one of {}", Self::KEYS.join(", "));
                return Err(LabError::Spec { what: "path", why });
            }
        }
        Ok(())
    }
}

fn read<T: FromStr<Err: Display>>(what: &'static str, text: &str) -> Result<T, LabError> {
    text.parse().map_err(|error: T::Err| LabError::Spec { what, why: error.to_string() })
}

fn number<T: FromStr>(what: &'static str, text: &str, example: &str) -> Result<T, LabError> {
    let why = || format!("'{text}' is not a number as it should be: write one like {example}");
    text.parse().map_err(|_| LabError::Spec { what, why: why() })
}

/// Names carry the units; what does not apply is null.
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
        let texts = [
            "10Gbit",
            "200ms",
            "1000packets",
            "0.01",
            "0.1%,10%",
            "red:max_p=0.02",
            "20%@8s",
            "4@5s..20s",
            "5ms",
            "tuned",
            "bbr",
            "7",
            "9000",
        ];
        for (key, text) in PathSpec::KEYS.into_iter().zip(texts) {
            spec.set(key, text).unwrap();
        }
        assert_eq!(
            serde_json::to_value(&spec).unwrap(),
            json!({
                "rate_bps": 10_000_000_000_u64, "rtt_s": 0.2, "queue_bytes": null, "queue_packets": 1000,
                "loss": 0.01, "gemodel": "0.001,0.1,1,0", "aqm": "red:min_th=5,max_th=15,max_p=0.02,w_q=0.002,gentle=yes", "background": "20%@8s", "cross_flows": "4@5s..20s", "ack_compression_s": 0.005, "hosts": "tuned", "congestion": "bbr", "seed": 7,
                "mtu_bytes": 9000
            })
        );
    }

    #[test]
    fn says_which_value_is_wrong_and_what_would_be_right() {
        for (key, text, expected) in [
            ("rtt", "20", "rtt: '20' is not a time: write a unit"),
            ("rate", "fast", "rate: 'fast' is not a rate"),
            ("loss", "some", "loss: 'some' is not a number as it should be: write one like 0.001"),
            ("gemodel", "2", "gemodel: '2' is no loss model: 2 is not between 0 and 1"),
            ("seed", "-1", "seed: '-1' is not a number"),
            (
                "aqm",
                "codel",
                "aqm: 'codel' is no way to choose what to drop: 'codel' is not one of droptail, red",
            ),
            ("background", "most", "background: 'most' is no background traffic"),
            ("ack_compression", "5", "ack_compression: '5' is not a time: write a unit"),
            (
                "cross_flows",
                "many",
                "cross_flows: 'many' are no cross flows: 'many' is not a number of flows",
            ),
            ("delay", "1ms", "unknown field `delay`, expected one of rate, rtt, queue"),
        ] {
            let error = PathSpec::default().set(key, text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
