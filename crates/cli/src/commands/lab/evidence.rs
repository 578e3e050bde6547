//! Values of records and pictures for the experiment runner.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::Result;
use longhaul_lab::LabError;
use longhaul_scope::draw;
use longhaul_scope::figures;
use longhaul_scope::record::Record;

use crate::say;

/// The option of `lab run` that sets the results directory.
pub(super) const OUT: &str = "--out";
/// The option of `lab exec` that sets the evidence directory, and the files in it.
pub(super) const EVIDENCE: &str = "--evidence";
pub(super) const PATH_FILE: &str = "path.json";
pub(super) const QUEUE_FILE: &str = "queue.svg";
/// Maximum of records on one page.
const MAX_RECORDS: usize = 12;

/// Creates `directory`, and fails if the evidence could not be written into it.
///
/// # Errors
/// A failure of creating or drawing, with the option `--evidence`.
pub(super) fn check_place(directory: &Path) -> Result<()> {
    let failed = |path: &Path, cause| LabError::create(path, EVIDENCE)(cause);
    fs::create_dir_all(directory).map_err(|cause| failed(directory, cause))?;
    let path = directory.join(PATH_FILE);
    OpenOptions::new().append(true).create(true).open(&path).map_err(|cause| failed(&path, cause))?;
    Ok(draw::check_place(&directory.join(QUEUE_FILE), EVIDENCE)?)
}

/// Draws records in common charts; does nothing without records.
///
/// # Errors
/// Fails if the page is not writable. Invalid records were reported when they were created.
pub(super) fn draw_overlay(records: &[(String, PathBuf)], path: &Path) -> Result<()> {
    let read = |(name, path): &(String, PathBuf)| Some((name.clone(), Record::load(path).ok()?));
    let loaded: Vec<_> = records.iter().take(MAX_RECORDS).filter_map(read).collect();
    if loaded.is_empty() {
        return Ok(());
    }
    if records.len() > MAX_RECORDS {
        say::line(format_args!(
            "lab: {} shows the first {MAX_RECORDS} of {} configurations; `longhaul report` compares others",
            path.display(),
            records.len()
        ));
    }
    Ok(draw::write(&figures::of_records(&loaded), path, OUT)?)
}
