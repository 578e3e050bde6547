//! Formats transfers as lines.

use longhaul_agent::transfer::{PlanUnits, Transfer, TransferState};
use longhaul_core::units::{Bytes, Rate};

use crate::stdout;

/// Prints the added transfers.
pub(super) fn added(transfers: &[Transfer], json: bool) {
    for transfer in transfers {
        if json {
            as_json(transfer);
        } else {
            stdout::line(format_args!("{} {}", transfer.id, printable(&transfer.ends.name)));
        }
    }
}

/// Prints a changed transfer.
pub(super) fn changed(transfer: &Transfer, json: bool) {
    if json {
        as_json(transfer);
    } else {
        stdout::line(format_args!("{} {}: {}", transfer.id, printable(&transfer.ends.name), transfer.state));
    }
}

/// Prints a page of a list; the `first` page has a head.
pub(super) fn list(transfers: &[Transfer], first: bool, json: bool) {
    if json {
        transfers.iter().for_each(as_json);
        return;
    }
    if first && !transfers.is_empty() {
        stdout::line(format_args!("{:>6}  {:<12}  {:>20}  {:>11}  NAME", "ID", "STATE", "BYTES", "RATE"));
    }
    transfers.iter().for_each(|transfer| stdout::line(line(transfer)));
}

/// Formats a transfer as a line.
pub(super) fn line(transfer: &Transfer) -> String {
    let progress = &transfer.progress;
    let size = progress.size.map_or_else(String::new, |size| format!("/{}", Bytes::new(size)));
    let bytes = format!("{}{size}", Bytes::new(progress.bytes));
    let rate = match progress.run.goodput_bps {
        0 => String::new(),
        rate => Rate::bits_per_sec(rate).to_string(),
    };
    let why = match (&transfer.error, transfer.state) {
        (Some(error), TransferState::Failed | TransferState::WaitingLink | TransferState::Scheduled) => {
            format!("\n        {}", printable(&error.message))
        }
        _ => String::new(),
    };
    let host = transfer.conditions.host.as_deref();
    let host = host.map_or_else(String::new, |host| format!(" on {}", printable(host)));
    let units = transfer.progress.run.units;
    let units =
        units.map_or_else(String::new, |PlanUnits { done, total }| format!(" ({done} of {total} units)"));
    let name = printable(&transfer.ends.name);
    let name = format!("{name}{units}{host}{why}");
    format!("{:>6}  {:<12}  {:>20}  {:>11}  {name}", transfer.id, transfer.state, bytes, rate)
}

/// Replaces terminal control characters: names and messages are under the server's control.
fn printable(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

fn as_json(transfer: &Transfer) {
    // A transfer always serialises.
    stdout::line(serde_json::to_string(transfer).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_no_escape_sequence() {
        assert_eq!(printable("a\u{1b}[2J\r\u{9b}ü b"), "a\u{fffd}[2J\u{fffd}\u{fffd}ü b");
    }
}
