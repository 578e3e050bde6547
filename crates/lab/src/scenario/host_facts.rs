//! The machine and the conditions of a measurement.

use std::fmt;
use std::fs::{self, File};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use longhaul_core::units::Bytes;
use serde::{Deserialize, Serialize};

use crate::clock;

/// Software and hardware of an execution; executions with different conditions may not be
/// comparable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Conditions {
    program: String,
    kernel: String,
    host: String,
}

impl Conditions {
    pub(super) fn now() -> Self {
        let facts = MachineFacts::now();
        Self {
            program: format!(concat!("longhaul ", env!("CARGO_PKG_VERSION"), " {}"), program_hash()),
            host: facts.hardware(),
            kernel: facts.kernel,
        }
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, Linux {}", self.program, self.host, self.kernel)
    }
}

/// Returns the first digits of this program's BLAKE3 hash: it distinguishes builds of one version.
fn program_hash() -> &'static str {
    const SHOWN: usize = 12;
    static HASH: OnceLock<String> = OnceLock::new();
    HASH.get_or_init(|| {
        let hashed = File::open("/proc/self/exe").and_then(|file| {
            let mut hasher = blake3::Hasher::new();
            hasher.update_reader(file)?;
            Ok(hasher.finalize().to_hex()[..SHOWN].to_owned())
        });
        hashed.unwrap_or_else(|error| format!("(unreadable: {error})"))
    })
}

/// Facts about the machine from its kernel.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineFacts {
    cores: usize,
    cpu: String,
    memory_bytes: u64,
    kernel: String,
    /// Time of the measurement, in seconds since 1970, UTC.
    began: f64,
}

impl MachineFacts {
    /// Reads the facts of this machine.
    pub fn now() -> Self {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = field(&memory, "MemTotal").and_then(|text| text.trim_end_matches(" kB").parse().ok());
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: field(&cpu, "model name").unwrap_or("unknown processor").to_owned(),
            memory_bytes: kib.map_or(0, |kib| Bytes::kib(kib).get()),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            began: clock::since_1970(),
        }
    }

    /// Formats the facts as a sentence.
    pub fn sentence(&self) -> String {
        let began = Duration::try_from_secs_f64(self.began).ok();
        // Converts "Fri, 21 Nov 2025 21:39:31 GMT"; a clock beyond the year 9999 has no date.
        let date = began
            .filter(|began| began.as_secs() < 253_402_300_800)
            .map(|began| httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + began));
        let date = date.as_deref().and_then(|date| date.get(5..16)).unwrap_or("unknown date");
        format!("{date}; {}, Linux {}", self.hardware(), self.kernel)
    }

    fn hardware(&self) -> String {
        let Self { cores, cpu, memory_bytes, .. } = self;
        format!("{cores} cores ({cpu}), {}", Bytes::new(*memory_bytes))
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
    line.map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_identified_by_its_content() {
        let program = Conditions::now().program;
        let hash = program.rsplit(' ').next().unwrap();
        let content = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(hash, &blake3::hash(&content).to_hex()[..12], "{program}");
    }

    #[test]
    fn describes_this_machine_with_any_clock() {
        let facts = MachineFacts::now();
        assert!(facts.memory_bytes > 0 && facts.sentence().contains(" cores ("), "{facts:?}");
        let unknown = [-1.0, f64::NAN, f64::MAX, 1e15].map(|began| (began, "unknown date; "));
        for (began, date) in [&[(1_763_761_171.0, "21 Nov 2025; ")][..], &unknown].concat() {
            let sentence = MachineFacts { began, ..facts.clone() }.sentence();
            assert!(sentence.starts_with(date), "{began}: {sentence}");
        }
    }
}
