//! What the figures were measured on.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result};
use longhaul_core::units::Bytes;
use serde::Serialize;

/// The machine, as its kernel describes it.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Machine {
    cores: usize,
    cpu: String,
    memory_bytes: u64,
    kernel: String,
    file_system: String,
    nginx: String,
    curl: String,
    axel: String,
    aria2: String,
    fio: String,
    date: String,
}

impl Machine {
    /// Describes this machine and the file system that holds `dir`.
    ///
    /// # Errors
    /// Names the program that is missing.
    pub(crate) fn describe(dir: &Path) -> Result<Self> {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib: u64 = field(&memory, "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0);
        let date = httpdate::fmt_http_date(SystemTime::now());
        let mut findmnt = Command::new("findmnt");
        findmnt.args(["-n", "-o", "FSTYPE", "-T"]).arg(dir);
        Ok(Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: field(&cpu, "model name").to_owned(),
            memory_bytes: Bytes::kib(kib).get(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            file_system: answer(findmnt)?.trim().to_owned(),
            nginx: version(Command::new(crate::nginx::find()?), "-v")?,
            curl: version(Command::new("curl"), "--version")?,
            axel: version(Command::new("axel"), "--version")?,
            aria2: version(Command::new("aria2c"), "--version")?,
            fio: version(Command::new("fio"), "--version")?,
            // From "Fri, 21 Nov 2025 21:39:31 GMT".
            date: date.get(5..16).unwrap_or(&date).to_owned(),
        })
    }

    /// Returns one sentence.
    pub(crate) fn sentence(&self) -> String {
        let Self { cores, cpu, memory_bytes, kernel, file_system, nginx, curl, axel, aria2, fio, date } =
            self;
        let memory = Bytes::new(*memory_bytes);
        format!(
            "{date}; {cores} cores ({cpu}), {memory}, Linux {kernel}, {file_system}; {nginx}, {curl}, {axel}, {aria2}, {fio}."
        )
    }
}

fn field<'a>(text: &'a str, name: &str) -> &'a str {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
    line.map_or("unknown", str::trim)
}

/// Returns name and version, the first two words of what the program says.
fn version(mut program: Command, flag: &str) -> Result<String> {
    program.arg(flag);
    let told = answer(program)?;
    let words = told.trim_start_matches("nginx version: ").split_whitespace();
    let words: Vec<_> = words.filter(|word| *word != "version").take(2).collect();
    Ok(words.join(" "))
}

fn answer(mut command: Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| {
        format!("cannot run {program}; `make bench` installs what is needed, or scripts/setup.sh test")
    })?;
    // nginx answers on its standard error.
    let told = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    Ok(String::from_utf8_lossy(&told).into_owned())
}
