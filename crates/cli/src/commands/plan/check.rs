//! Reads the target of a plan: compares it with the plan, or prints its digests.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use longhaul_core::checksum::Algorithm;
use longhaul_engine::cancel::Cancel;
use longhaul_farm::files::{self, Comparison};
use longhaul_farm::plan::Plan;
use longhaul_farm::target::Target;

use crate::{exit, say};

/// Compares all files with the plan; prints those that differ.
pub(super) fn verify(plan: &Plan, cancel: &Cancel) -> anyhow::Result<ExitCode> {
    let target = Target::open(plan.header())?;
    let (mut right, mut wrong) = (0_u64, 0_u64);
    for unit in plan.ids() {
        for file in plan.unit(unit)?.completes() {
            let found = if cancel.is_cancelled() {
                Comparison::Cancelled
            } else {
                files::compare(&target, file, cancel)
            };
            match found {
                Comparison::Cancelled => return Ok(exit::INTERRUPTED.into()),
                Comparison::Equal => right += 1,
                Comparison::Differs(how) => {
                    wrong += 1;
                    let name = file.path.display().to_string().replace(char::is_control, "?");
                    say::output(format_args!("{name} {how}"));
                }
            }
        }
    }
    if let Some(note) = plan.header().left_out_note() {
        tracing::warn!("{note}");
    }
    if wrong == 0 {
        match right {
            1 => say::output(format_args!("1 file is as planned")),
            _ => say::output(format_args!("{right} files are as planned")),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let message = format!(
        "{wrong} of {} files are not as planned: make a new plan of the sources, whose workers fetch only what differs",
        right + wrong
    );
    Ok(exit::said(message, exit::DATA).into())
}

/// Prints a line of sha256sum for each file.
pub(super) fn manifest(plan: &Plan, cancel: &Cancel) -> anyhow::Result<ExitCode> {
    let target = Target::open(plan.header())?;
    for unit in plan.ids() {
        for file in plan.unit(unit)?.completes() {
            match files::digest(&target, file, Algorithm::Sha256, cancel)? {
                Some(digest) => say::bytes(&line(digest.hex(), &file.path)),
                None => return Ok(exit::INTERRUPTED.into()),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Formats a line of sha256sum(1): a name that would break the line is escaped, which a backslash before the digest tells.
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
