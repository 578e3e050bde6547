//! The result of one run.

use std::path::Path;
use std::time::Duration;
use std::{fmt, fs};

use anyhow::{Context, Result};
use longhaul_core::units::{Bytes, Rate};
use longhaul_lab::scenario::{RunResult, progress};
use serde::{Deserialize, Serialize, Serializer};

use crate::bench_job::BenchJob;
use crate::bench_part::BenchPart;
use crate::clients::BenchClient;
use crate::paths::BenchPath;

/// The result of one run: times in seconds, sizes in bytes.
#[derive(Debug, Serialize)]
pub(crate) struct BenchRun {
    pub(crate) part: BenchPart,
    pub(crate) path: BenchPath,
    pub(crate) client: BenchClient,
    /// Number of the repetition, from 1.
    pub(crate) repetition: u32,
    /// The file's size.
    pub(crate) bytes: u64,
    /// Seconds from the program's start to its end; for fio, from its first byte.
    pub(crate) wall_s: f64,
    pub(crate) user_s: f64,
    pub(crate) sys_s: f64,
    pub(crate) max_rss_bytes: u64,
    /// Page faults without I/O: first accesses to memory.
    pub(crate) minor_faults: u64,
    /// The duration of an fsync of the file after the program's end.
    pub(crate) flush_s: f64,
    /// The rate of payload after the ramp-up, in bits per second; `None` for short runs and other programs.
    pub(crate) steady_bps: Option<u64>,
    /// The rate of payload in each whole second since the start, in bits per second; recorded if convergence is measured.
    #[serde(rename = "by_second_bps", serialize_with = "bits", skip_serializing_if = "Vec::is_empty")]
    pub(crate) by_second: Vec<Rate>,
    /// Whether the content was compared with the original, as in the first repetition.
    pub(crate) verified: bool,
    /// The received share of the capacity left beside cross traffic after the ramp-up.
    pub(crate) left_share: Option<f64>,
    /// The largest mean over 1 ms at the receiver, over the mean at steady speed; if recorded.
    pub(crate) burstiness_1ms: Option<f64>,
    /// The 99th percentile of the means over 1 ms, over the mean.
    pub(crate) mostly_1ms: Option<f64>,
    /// Seconds from the last byte to the verified file, if `get` has verified a digest.
    pub(crate) digest_s: Option<f64>,
    /// Retransmitted segments, if the sender recorded them.
    pub(crate) retransmits: Option<f64>,
    /// Packets that were dropped by a full queue.
    pub(crate) dropped: u64,
    /// The share of cross traffic towards the receiver that was dropped by a full queue.
    pub(crate) background_loss: Option<f64>,
    /// Deviations of the emulated path from its specification; empty without any.
    pub(crate) warnings: Vec<String>,
}

fn bits<S: Serializer>(rates: &[Rate], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(rates.iter().map(|rate| rate.as_bits_per_sec()))
}

impl BenchRun {
    /// Reads the lab's result of a run; `output` is what the client wrote to stdout.
    ///
    /// # Errors
    /// Names a value that is missing.
    pub(crate) fn of(
        part: BenchPart,
        job: &BenchJob,
        client: BenchClient,
        result: &RunResult,
        output: &Path,
    ) -> Result<Self> {
        let value = |name: &str| result.value(name);
        let required = |name: &str| value(name).with_context(|| format!("the run has no value {name}"));
        let wall = if client == BenchClient::Fio { "write_s" } else { "client_wall_s" };
        let flush_s = if client.keeps_file() { required("flush_s")? } else { 0.0 };
        // Other programs print no progress.
        let samples = progress::samples(output).unwrap_or_default();
        let keeps_seconds = matches!(client, BenchClient::SmallSockets(_));
        let reads_digest = client == BenchClient::GetFromServe;
        // Only a sender counts retransmits; burstiness matters at a receiver.
        let (retransmits, direction) = match client.sends() {
            true => ("retransmits", "client_to_server"),
            false => ("server_retransmits", "server_to_client"),
        };
        let received = |name: &str| value(name).filter(|_| !client.sends());
        Ok(Self {
            part,
            path: job.path,
            client,
            repetition: result.repetition,
            bytes: job.total().get(),
            wall_s: required(wall)?,
            user_s: required("client_user_s")?,
            sys_s: required("client_sys_s")?,
            max_rss_bytes: required("max_rss_bytes")? as u64,
            minor_faults: required("minor_faults")? as u64,
            flush_s,
            steady_bps: progress::rate(&samples, job.size).map(Rate::as_bits_per_sec),
            by_second: if keeps_seconds { progress::by_second(&samples, job.size) } else { Vec::new() },
            verified: client.keeps_file() && result.repetition == 1,
            left_share: value("left_share"),
            burstiness_1ms: received("burstiness_1ms"),
            mostly_1ms: received("p99_1ms_bps").zip(value("mean_bps")).map(|(p99, mean)| p99 / mean),
            digest_s: reads_digest.then(|| digest_seconds(&fs::read_to_string(output).ok()?)).flatten(),
            retransmits: value(retransmits),
            dropped: required("dropped_queue")? as u64,
            background_loss: value(&format!("background_{direction}_loss")),
            warnings: result.infidelities.clone(),
        })
    }

    /// Creates a result of `wall_s` seconds, for tests.
    #[cfg(test)]
    pub(crate) fn timed(path: BenchPath, client: BenchClient, size: Bytes, wall_s: f64) -> Self {
        Self {
            part: BenchPart::LongPath,
            path,
            client,
            repetition: 1,
            bytes: size.get(),
            wall_s,
            user_s: 0.0,
            sys_s: 0.0,
            max_rss_bytes: 0,
            minor_faults: 0,
            flush_s: 0.0,
            steady_bps: None,
            by_second: Vec::new(),
            verified: false,
            left_share: None,
            burstiness_1ms: None,
            mostly_1ms: None,
            digest_s: None,
            retransmits: None,
            dropped: 0,
            background_loss: None,
            warnings: Vec::new(),
        }
    }

    /// Returns the size of the file over the program's run time.
    pub(crate) fn goodput(&self) -> Rate {
        Rate::over(Bytes::new(self.bytes), Duration::from_secs_f64(self.wall_s))
    }

    /// Returns the size of the file over the time until it was durable.
    pub(crate) fn goodput_to_disk(&self) -> Rate {
        Rate::over(Bytes::new(self.bytes), Duration::from_secs_f64(self.wall_s + self.flush_s))
    }

    /// Returns the CPU seconds, user and system, per GiB.
    pub(crate) fn cpu_per_gib(&self) -> f64 {
        (self.user_s + self.sys_s) * Bytes::gib(1).get() as f64 / self.bytes as f64
    }
}

impl fmt::Display for BenchRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, client, repetition, wall_s, .. } = self;
        let (goodput, cpu) = (self.goodput(), self.cpu_per_gib());
        write!(f, "{path}: {client}, {repetition}: {wall_s:.2} s, {goodput}, CPU {cpu:.3} s/GiB")?;
        self.warnings.iter().try_for_each(|warning| write!(f, "\nbench: WARNING: {warning}"))
    }
}

/// Returns the seconds from the last byte to the end of a job, by the lines of `longhaul get --json`; `None` without a digest, or where no
/// line tells of the last byte.
fn digest_seconds(lines: &str) -> Option<f64> {
    #[derive(Deserialize)]
    struct EventLine {
        event: String,
        at: f64,
        bytes: Option<u64>,
        received: Option<u64>,
    }
    let events: Vec<EventLine> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let last = |name: &str| events.iter().rfind(|line| line.event == name);
    let (done, verifying) = (last("done")?, last("verifying")?);
    // Writers and hashers may end between the last byte and `verifying`.
    let whole = events.iter().find(|line| line.received.is_some() && line.received == done.bytes);
    Some(done.at - whole.map_or(verifying.at, |line| line.at.min(verifying.at)))
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A run as stored in results.json.
    pub(crate) fn stored(name: &str, parameters: &Value, repetition: u32, values: &Value) -> Value {
        json!({
            "name": name, "parameters": parameters, "repetition": repetition, "seed": 1, "started": 0.0, "exit_code": 0,
            "signal": null, "timed_out": false, "error": null, "wall_s": 9.0, "user_s": 9.0, "sys_s": 9.0, "link": null,
            "values": values, "infidelities": ["late"], "remarks": ["the server command was killed"],
        })
    }

    fn run(client: BenchClient, values: &Value) -> Result<BenchRun> {
        let result = stored(&client.run_name(), &json!({}), 1, values);
        let job = BenchJob::new(BenchPath::LongCubic, &[client], Bytes::gib(1));
        let result = serde_json::from_value(result).unwrap();
        BenchRun::of(BenchPart::LongPath, &job, client, &result, Path::new("/dev/null"))
    }

    #[test]
    fn values_are_the_clients_own_and_none_may_be_missing() {
        let values = json!({
            "client_wall_s": 2.0, "write_s": 1.5, "client_user_s": 0.5, "client_sys_s": 0.25, "max_rss_bytes": 7,
            "minor_faults": 8, "flush_s": 0.125, "dropped_queue": 3,
        });
        for (client, unused, wall_s, flush_s) in [
            (BenchClient::Curl, &["write_s"][..], 2.0, 0.125),
            (BenchClient::Fio, &["client_wall_s", "flush_s"], 1.5, 0.0),
        ] {
            let whole = run(client, &values).unwrap();
            let seconds = (whole.wall_s, whole.user_s, whole.sys_s, whole.flush_s);
            assert_eq!(seconds, (wall_s, 0.5, 0.25, flush_s));
            assert_eq!((whole.max_rss_bytes, whole.minor_faults, whole.dropped), (7, 8, 3));
            assert_eq!(whole.warnings, ["late"], "remarks do not mark a run");
            for name in values.as_object().unwrap().keys() {
                let mut without = values.clone();
                without.as_object_mut().unwrap().remove(name);
                let missing = run(client, &without).err().map(|error| error.to_string());
                let expected = format!("the run has no value {name}");
                assert_eq!(missing, (!unused.contains(&name.as_str())).then_some(expected), "{client}");
            }
        }
    }

    #[test]
    fn digest_takes_the_time_after_the_last_byte() {
        let verified = "{\"event\":\"progress\",\"at\":9.0,\"received\":5}\n{\"event\":\"verifying\",\"at\":9.5}\n\
                        {\"event\":\"done\",\"at\":9.75,\"bytes\":5}\n";
        assert_eq!(digest_seconds(verified), Some(0.75));
        assert_eq!(digest_seconds("{\"event\":\"done\",\"at\":9.75}\nno JSON\n"), None);
    }
}
