//! `longhaul report RECORD...`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use longhaul_scope::record::Record;
use longhaul_scope::{draw, figures};

use crate::{exit, say};

/// Which records, drawn into what.
///
/// Several records are compared in the same charts.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// What `longhaul get --record` or `longhaul serve --record` has written
    #[arg(required = true, value_name = "RECORD")]
    records: Vec<PathBuf>,

    /// Where the charts go: a page to look into (.html), or a picture (.svg, .png); may be given several
    /// times [default: the first record's name with .html]
    #[arg(short, long, value_name = "FILE")]
    output: Vec<PathBuf>,

    /// The records' names in the charts, in their order [default: the names of their files]
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<String>,
}

/// Draws, and prints the files it has written.
///
/// # Errors
/// Fails where a record cannot be read, or an output cannot be written.
pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode> {
    let outputs = if args.output.is_empty() {
        args.records[..1].iter().map(|first| first.with_extension("html")).collect()
    } else {
        args.output.clone()
    };
    for output in &outputs {
        draw::check_name(output)?;
        if args.records.iter().any(|record| is_same(record, output)) {
            say::error(format_args!("{} is a record: name another file with -o", output.display()));
            return Ok(exit::USAGE.into());
        }
    }
    if args.names.len() > args.records.len() {
        say::error("there are more names than records: give --name once for each record");
        return Ok(exit::USAGE.into());
    }
    let mut records = Vec::new();
    for (name, path) in names(args).into_iter().zip(&args.records) {
        let record = Record::load(path)?;
        if let Some(damage) = &record.damage {
            say::error(format_args!("WARNING: {} is damaged: {damage}", path.display()));
        }
        records.push((name, record));
    }
    let sheet = figures::of_records(&records);
    for output in &outputs {
        draw::write(&sheet, output)?;
        say::output(output.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn is_same(record: &Path, output: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(record).is_some_and(|record| real(output) == Some(record))
}

/// Returns a name for each record, no two alike.
fn names(args: &ReportArgs) -> Vec<String> {
    let stem = |path: &PathBuf| path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let given = args.names.iter().cloned().map(Some).chain(std::iter::repeat(None));
    let wanted = args.records.iter().zip(given).map(|(path, name)| name.unwrap_or_else(|| stem(path)));
    let mut taken = HashSet::new();
    let mut unique = |name: String| {
        let numbered = (2..).map(|number| format!("{name} ({number})"));
        let mut candidates = std::iter::once(name.clone()).chain(numbered);
        let free = candidates.find(|name| !taken.contains(name)).unwrap_or(name);
        taken.insert(free.clone());
        free
    };
    wanted.map(&mut unique).collect()
}
