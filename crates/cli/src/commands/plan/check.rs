//! Compares the target of a plan with it, and prints the digests of its files.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use longhaul_core::checksum::Algorithm;
use longhaul_core::failure::FailureKind;
use longhaul_core::files_at_once::JobAdmission;
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::engine::Engine;
use longhaul_engine::sink::memory_budget::AppBuffer;
use longhaul_farm::files::{self, Comparison};
use longhaul_farm::plan::Plan;
use longhaul_farm::target_directory::TargetDirectory;
use longhaul_farm::unit::PlannedFile;
use parking_lot::Mutex;
use url::Url;

use super::make::LOOKUPS;
use crate::client_args::ClientArgs;
use crate::{exit, stdout};

/// What a comparison has found.
#[derive(Debug, Default)]
struct Verified {
    right: u64,
    wrong: u64,
    /// The files that the server does not show.
    unknown: u64,
}

impl Verified {
    /// Counts a file; prints one that differs, or cannot be compared.
    fn add(&mut self, file: &PlannedFile, found: Result<Comparison, String>) {
        let how = match found {
            Ok(Comparison::Equal) => return self.right += 1,
            // The next file ends the comparison.
            Ok(Comparison::Cancelled) => return,
            Ok(Comparison::Differs(how)) => {
                self.wrong += 1;
                how
            }
            Err(why) => {
                self.unknown += 1;
                format!("cannot be verified: {why}")
            }
        };
        let line = format!("{} {how}", file.path.display());
        stdout::line(line.replace(char::is_control, "?"));
    }
}

/// Compares all files with the plan; prints those that differ.
pub(super) fn verify(plan: &Plan, client: &ClientArgs, cancel: &Cancel) -> anyhow::Result<ExitCode> {
    let verified = match (TargetDirectory::open(plan.header())?, plan.header().target.server()) {
        (Some(target), _) => verify_directory(plan, &target, cancel)?,
        (None, Some(url)) => verify_server(plan, url, client, cancel)?,
        (None, None) => Verified::default(),
    };
    if cancel.is_cancelled() {
        return Ok(exit::of(exit::of_stop(FailureKind::Interrupted, cancel)).into());
    }
    if let Some(note) = plan.header().left_out_note() {
        tracing::warn!("{note}");
    }
    let Verified { right, wrong, unknown } = verified;
    if wrong > 0 {
        let message = format!(
            "{wrong} of {} files are not as planned: make a new plan of the sources, whose workers transfer only what differs",
            right + wrong + unknown
        );
        return Ok(exit::said(message, FailureKind::Data));
    }
    match right {
        1 => stdout::line("1 file is as planned"),
        _ => stdout::line(format_args!("{right} files are as planned")),
    }
    if unknown > 0 {
        let message = format!("{unknown} files cannot be verified: the server does not show their sizes");
        return Ok(exit::said(message, FailureKind::Unavailable));
    }
    Ok(ExitCode::SUCCESS)
}

fn verify_directory(plan: &Plan, target: &TargetDirectory, cancel: &Cancel) -> anyhow::Result<Verified> {
    let mut verified = Verified::default();
    for unit in plan.ids().take_while(|_| !cancel.is_cancelled()) {
        for file in plan.unit(unit)?.completes() {
            if !cancel.is_cancelled() {
                verified.add(file, Ok(files::compare(target, file, cancel)));
            }
        }
    }
    Ok(verified)
}

/// Compares the sizes that the server states, several files at once.
fn verify_server(plan: &Plan, url: &Url, client: &ClientArgs, cancel: &Cancel) -> anyhow::Result<Verified> {
    client.check_cleartext(url)?;
    let options = client.options(cancel)?;
    let engine = Engine::new(AppBuffer::Auto);
    let target = engine.upload_target(url, &options)?;
    let verified = Mutex::new(Verified::default());
    for unit in plan.ids().take_while(|_| !cancel.is_cancelled()) {
        let unit = plan.unit(unit)?;
        engine.run_each(
            unit.completes(),
            |_| None,
            JobAdmission::new(LOOKUPS),
            cancel,
            |file| {
                let found = match target.size_of(&target.url_of(&file.path), cancel) {
                    // Apache states no length of an empty file.
                    Ok(size) if size.unwrap_or_default() == file.size.unwrap_or_default() => {
                        Ok(Comparison::Equal)
                    }
                    Ok(None) => Err("the server states no size".to_owned()),
                    Ok(Some(size)) => {
                        let planned = file.size.unwrap_or_default().get();
                        Ok(Comparison::Differs(format!("has {} bytes instead of {planned}", size.get())))
                    }
                    Err(failure) if failure.kind == FailureKind::NotFound => {
                        Ok(Comparison::Differs("is missing".to_owned()))
                    }
                    Err(failure) => Err(failure.to_string()),
                };
                if !cancel.is_cancelled() {
                    verified.lock().add(file, found);
                }
                Some(Bytes::ZERO)
            },
        );
    }
    Ok(verified.into_inner())
}

/// Prints a line of sha256sum for each file.
pub(super) fn manifest(plan: &Plan, cancel: &Cancel) -> anyhow::Result<ExitCode> {
    let target = TargetDirectory::open(plan.header())?;
    for unit in plan.ids() {
        for file in plan.unit(unit)?.completes() {
            match files::digest(target.as_ref(), file, Algorithm::Sha256, cancel)? {
                Some(digest) => stdout::bytes(&line(digest.hex(), &file.path)),
                None => return Ok(exit::of(FailureKind::Interrupted).into()),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Formats a line of sha256sum(1): a name that would break the line is escaped, which a backslash
/// before the digest tells.
fn line(hex: &str, path: &Path) -> Vec<u8> {
    let name = path.as_os_str().as_bytes();
    let is_escaped = name.iter().any(|byte| matches!(byte, b'\\' | b'\n' | b'\r'));
    let mut line = if is_escaped { vec![b'\\'] } else { Vec::new() };
    line.extend_from_slice(hex.as_bytes());
    line.extend_from_slice(b"  ");
    for byte in name {
        match byte {
            b'\\' => line.extend_from_slice(b"\\\\"),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            byte => line.push(*byte),
        }
    }
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awkward_names_are_escaped_as_sha256sum_does() {
        assert_eq!(line("ab", Path::new("d/a b")), b"ab  d/a b\n");
        assert_eq!(line("ab", Path::new("a\nb\\c\r")), b"\\ab  a\\nb\\\\c\\r\n");
    }
}
