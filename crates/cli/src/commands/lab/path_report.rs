//! The statistics of a path, as JSON and as pictures.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use longhaul_lab::{DirectionEvidence, FlowKey, FlowStats, Lab, PathSpec, PathStats, QueueSample};
use longhaul_scope::chart::{Axis, Chart, Mark, Scale, Series, Sheet, Unit};
use longhaul_scope::draw;
use serde_json::{Value, json};

use super::evidence;

/// JSON keys of both directions, in the order of [`Lab::evidence`].
const DIRECTIONS: [&str; 2] = ["client_to_server", "server_to_client"];

/// Everything measured on a path.
pub(super) struct PathReport {
    spec: PathSpec,
    stats: PathStats,
    evidence: Vec<DirectionEvidence>,
    exit_code: Option<i32>,
}

impl PathReport {
    /// Collects the measurements of a lab.
    ///
    /// # Errors
    /// Fails if counters are unreadable or captures are not writable.
    pub(super) fn of(lab: &Lab, exit_code: Option<i32>) -> Result<Self> {
        Ok(Self { spec: lab.spec().clone(), stats: lab.stats()?, evidence: lab.evidence()?, exit_code })
    }

    /// Returns the deviations of the path from its specification.
    pub(super) fn infidelities(&self) -> Vec<String> {
        self.stats.infidelities(&self.spec)
    }

    /// Returns a line for each direction, and further lines.
    pub(super) fn lines(&self) -> Vec<String> {
        self.stats.to_string().lines().map(str::to_owned).collect()
    }

    /// Returns the report as a JSON object: times in seconds, sizes in bytes, rates in bits per
    /// second.
    pub(super) fn json(&self) -> Value {
        let stats = [self.stats.client_to_server, self.stats.server_to_client];
        let mut object = json!({ "event": "path", "exit_code": self.exit_code, "path": self.spec });
        object["infidelities"] = json!(self.infidelities());
        for (index, name) in DIRECTIONS.into_iter().enumerate() {
            let flows = self.evidence.get(index).map(|evidence| evidence.flows.iter().map(flow));
            object[name] = stats[index].to_json();
            object[name]["flows"] = flows.map(Iterator::collect::<Value>).into();
        }
        object
    }

    /// Writes `path.json`, which includes the queues over time, and `queue.svg` into an existing
    /// `directory`.
    ///
    /// # Errors
    /// Fails if a file is not writable.
    pub(super) fn write(&self, directory: &Path) -> Result<()> {
        let mut object = self.json();
        for (name, evidence) in DIRECTIONS.iter().zip(&self.evidence) {
            object[*name]["interval_s"] = json!(evidence.interval.as_secs_f64());
            object[*name]["queue"] = evidence.queue.iter().map(sample).collect();
        }
        let path = directory.join(evidence::PATH_FILE);
        fs::write(&path, format!("{object:#}\n"))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(draw::write(&self.sheet(), &directory.join(evidence::QUEUE_FILE), evidence::EVIDENCE)?)
    }

    fn sheet(&self) -> Sheet {
        let chart = |title: &str, label: &str, unit, value: fn(&QueueSample) -> f64| Chart {
            title: title.to_owned(),
            note: "the most in each interval".to_owned(),
            x: Axis::new("time", Unit::Seconds, Scale::Linear),
            y: Axis::new(label, unit, Scale::Linear),
            series: self.series(value),
        };
        Sheet {
            title: "The bottleneck's queue".to_owned(),
            notes: self.infidelities(),
            charts: vec![
                chart("Queue", "queued", Unit::Bytes, |sample| sample.bytes.get() as f64),
                chart("Sojourn time", "in the queue", Unit::Seconds, |sample| sample.sojourn.as_secs_f64()),
                chart("Dropped", "packets an interval", Unit::Number, |sample| sample.dropped as f64),
            ],
        }
    }

    fn series(&self, value: fn(&QueueSample) -> f64) -> Vec<Series> {
        let line = |(index, evidence): (usize, &DirectionEvidence)| Series {
            name: DIRECTIONS[index].replace('_', " "),
            colour: index,
            mark: Mark::Line,
            points: evidence
                .queue
                .iter()
                .map(|sample| (sample.from.as_secs_f64(), value(sample)).into())
                .collect(),
        };
        self.evidence.iter().take(DIRECTIONS.len()).enumerate().map(line).collect()
    }
}

fn flow((key, stats): (&Option<FlowKey>, &FlowStats)) -> Value {
    let end = |end: fn(&FlowKey) -> (std::net::IpAddr, u16)| {
        key.as_ref().map(|key| std::net::SocketAddr::from(end(key)).to_string())
    };
    json!({
        "protocol": key.as_ref().map(FlowKey::protocol_name),
        "from": end(|key| key.from),
        "to": end(|key| key.to),
        "packets": stats.packets,
        "bytes": stats.bytes.get(),
        "dropped_queue": stats.dropped_queue,
        "dropped_loss": stats.dropped_loss,
        "marked": stats.marked,
        "first_s": stats.first.as_secs_f64(),
        "last_s": stats.last.as_secs_f64(),
        "rate_bps": stats.rate().as_bits_per_sec(),
    })
}

fn sample(sample: &QueueSample) -> Value {
    json!({
        "t_s": sample.from.as_secs_f64(),
        "bytes": sample.bytes.get(),
        "packets": sample.packets,
        "sojourn_s": sample.sojourn.as_secs_f64(),
        "arrived_bytes": sample.arrived.get(),
        "dropped": sample.dropped,
        "marked": sample.marked,
    })
}
