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
    pub const KEYS: &'static str = "rate, rtt, delay, queue, loss, gemodel, aqm, background, cross_flows, \
        ack_compression, hosts, congestion, seed, mtu, rate_steps, trace, jitter, reorder, duplicate, corrupt, ecn, \
        up, down, second, pairs";

    /// Returns whether there is a field of this name.
    pub(crate) fn is_key(key: &str) -> bool {
        Self::KEYS.split(", ").any(|known| known == key)
    }

    /// Sets the field `key` from text, such as "rtt" from "200ms".
    ///
    /// Does not check combinations of fields; see [`validate`](Self::validate).
    ///
    /// # Errors
    /// Fails on an unknown key or an invalid value; names both, and what is valid.
    pub fn set(&mut self, key: &str, text: &str) -> Result<(), LabError> {
        match Self::KEYS.split(", ").find(|known| *known == key) {
            Some(what @ "rate") => self.rate = Some(read(what, text)?),
            Some(what @ "rtt") => self.rtt = read::<Rtt>(what, text)?,
            Some(what @ "queue") => self.queue = Some(read::<QueueLimit>(what, text)?),
            Some(what @ "delay") => self.rtt = Rtt::new(read::<Rtt>(what, text)?.get().saturating_mul(2)),
            Some(what @ "loss") => self.impairments.loss = read::<PacketShare>(what, text)?.get(),
            Some(what @ "gemodel") => self.impairments.gemodel = read(what, text)?,
            Some(what @ "aqm") => self.aqm = read(what, text)?,
            Some(what @ "background") => self.traffic.background = read(what, text)?,
            Some(what @ "cross_flows") => self.traffic.cross_flows = read(what, text)?,
            Some(what @ "ack_compression") => self.traffic.ack_compression = read(what, text)?,
            Some(what @ "hosts") => self.ends.hosts = read(what, text)?,
            Some("congestion") => self.ends.congestion = text.to_owned(),
            Some(what @ "seed") => self.seed = number(what, text, "1")?,
            Some(what @ "rate_steps") => self.set_schedule(read(what, text)?),
            Some(what @ "trace") => {
                let trace = RateSchedule::load_trace(text.as_ref());
                self.set_schedule(trace.map_err(|error| LabError::Spec { what, why: error.to_string() })?);
            }
            Some(what @ "jitter") => self.impairments.jitter = read(what, text)?,
            Some(what @ "reorder") => self.impairments.reorder = read(what, text)?,
            Some(what @ "duplicate") => self.impairments.duplicate = read(what, text)?,
            Some(what @ "corrupt") => self.impairments.corrupt = read(what, text)?,
            Some(what @ "ecn") => self.ends.ecn = truth(what, text)?,
            Some(what @ "up") => self.overrides.up = read(what, text)?,
            Some(what @ "down") => self.overrides.down = read(what, text)?,
            Some(what @ "second") => self.overrides.second = read(what, text)?,
            Some(what @ "pairs") => self.ends.pairs = read(what, text)?,
            Some(what @ "mtu") => self.ends.mtu = Bytes::new(number(what, text, "1500")?),
            _ => {
                let why = format!("unknown field `{key}`, expected one of {}", Self::KEYS);
                return Err(LabError::Spec { what: "path", why });
            }
        }
        Ok(())
    }

    /// Sets the schedule of the rate; if no rate is set, `rate` becomes the schedule's nominal
    /// rate.
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
            "loss": self.impairments.loss,
            "gemodel": self.impairments.gemodel.to_string(),
            "aqm": self.aqm.to_string(),
            "background": self.traffic.background.to_string(),
            "cross_flows": self.traffic.cross_flows.to_string(),
            "ack_compression_s": self.traffic.ack_compression.get().as_secs_f64(),
            "hosts": self.ends.hosts.to_string(),
            "congestion": self.ends.congestion,
            "seed": self.seed,
            "mtu_bytes": self.ends.mtu.get(),
            "rate_schedule": self.schedule.to_string(),
            "jitter_s": self.impairments.jitter.get().as_secs_f64(),
            "reorder": self.impairments.reorder.to_string(),
            "duplicate": self.impairments.duplicate.get(),
            "corrupt": self.impairments.corrupt.get(),
            "ecn": self.ends.ecn,
            "up": self.overrides.up.to_string(),
            "down": self.overrides.down.to_string(),
            "second": self.overrides.second.to_string(),
            "pairs": self.ends.pairs.to_string(),
        });
        object.serialize(serializer)
    }
}
