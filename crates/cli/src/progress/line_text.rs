//! The text of a progress line.

use std::path::Path;
use std::time::Duration;

use longhaul_core::event::{BufferProgress, PathProgress, Progress};
use longhaul_core::units::{Bytes, Rate};
use longhaul_scope::record::schema::Side;

use super::eta::EtaEstimate;

/// Returns a file's name without control characters.
pub(super) fn shown_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Returns a name, truncated to `longest`.
pub(super) fn short_name(name: &str, longest: usize) -> String {
    match name.char_indices().nth(longest) {
        Some((end, _)) => format!("{}..", &name[..end]),
        None => name.to_owned(),
    }
}

/// Formats rate, remaining time, progress, buffers and path.
///
/// The end of a line that is too long is truncated. A narrow line shows percentages only.
pub(super) fn line(now: &Progress, pace: &EtaEstimate, side: Side, narrow: bool) -> String {
    let much = match now.bytes.size {
        Some(_) if narrow => String::new(),
        Some(size) => format!("  {} of {size}", now.bytes.present),
        None => format!("  {}", now.bytes.present),
    };
    let eta = pace.left().map_or_else(String::new, |left| format!("  ETA {}", clock(left)));
    let buffers = if side == Side::Put { flight(now) } else { buffers(now) };
    let rtt = now.path.rtt.map_or_else(String::new, |rtt| format!("  RTT {rtt}"));
    let streams = if now.streams == 1 { "1 stream".into() } else { format!("{} streams", now.streams) };
    format!("{}{eta}{much}  {buffers}  {streams}{rtt}", pace.rate())
}

/// Formats the progress of all files; `known` is their total size, if known.
pub(super) fn total(
    files: Option<usize>,
    ended: usize,
    present: Bytes,
    known: Option<Bytes>,
    rate: Rate,
) -> String {
    let files = match files {
        Some(files) => format!("{ended} of {files} files done"),
        None => format!("{ended} files done"),
    };
    let Some(size) = known.filter(|size| *size > Bytes::ZERO) else {
        return format!("{files}  {rate}  {present}");
    };
    let left = rate.time_for(size - present);
    let eta =
        if left < Duration::from_secs(360_000) { format!("  ETA {}", clock(left)) } else { String::new() };
    format!("{files}  {}  {rate}{eta}  {present} of {size}", percent(present, size))
}

/// Formats a sender's congestion window and retransmissions.
fn flight(now: &Progress) -> String {
    let cwnd = now.path.cwnd.map_or_else(String::new, |cwnd| format!("cwnd {cwnd} "));
    format!("{cwnd}lost {}", now.retransmits)
}

/// Formats the fill levels of the three buffers: socket, application, and dirty pages of the file.
fn buffers(now: &Progress) -> String {
    // The announced window bounds the further data.
    let PathProgress { rwin, unread, .. } = now.path;
    let socket = rwin.map_or_else(|| unread.to_string(), |rwin| percent(unread, unread + rwin));
    let BufferProgress { buffered, app_buffer, dirty, writeback } = now.buffers;
    let app = percent(buffered, app_buffer);
    let cached = dirty.zip(writeback).map(|(dirty, writeback)| dirty + writeback);
    let cache = cached.map_or_else(String::new, |bytes| format!(" cache {bytes}"));
    format!("sock {socket} app {app}{cache}")
}

fn percent(part: Bytes, whole: Bytes) -> String {
    let percent = part.get().saturating_mul(100).checked_div(whole.get()).unwrap_or(0);
    format!("{percent}%")
}

fn clock(time: Duration) -> String {
    let (minutes, seconds) = (time.as_secs() / 60, time.as_secs() % 60);
    if minutes < 60 {
        format!("{minutes}:{seconds:02}")
    } else {
        format!("{}:{:02}:{seconds:02}", minutes / 60, minutes % 60)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::event::ByteProgress;
    use longhaul_core::units::Rtt;

    use super::*;

    /// A pace of `bytes_per_second` with `left` remaining.
    fn pace(bytes_per_second: u64, left: Option<Bytes>) -> EtaEstimate {
        let mut pace = EtaEstimate::default();
        pace.follow(Duration::from_secs(1), Bytes::new(bytes_per_second), left);
        pace
    }

    fn bytes(present: Bytes, size: Option<Bytes>) -> ByteProgress {
        ByteProgress { present, size, ..ByteProgress::default() }
    }

    #[test]
    fn line_has_rate_time_progress_and_path() {
        let now = Progress {
            bytes: bytes(Bytes::gib(2), Some(Bytes::gib(8))),
            streams: 1,
            path: PathProgress {
                rtt: Some(Rtt::new(Duration::from_millis(200))),
                unread: Bytes::mib(30),
                rwin: Some(Bytes::mib(270)),
                ..PathProgress::default()
            },
            buffers: BufferProgress {
                buffered: Bytes::mib(8),
                app_buffer: Bytes::mib(64),
                dirty: Some(Bytes::gib(1)),
                writeback: Some(Bytes::gib(1)),
            },
            ..Progress::default()
        };
        let text = line(&now, &pace(1_225_000_000, Some(Bytes::gib(6))), Side::Get, false);
        let whole =
            "9.80 Gbit/s  ETA 0:05  2 GiB of 8 GiB  sock 10% app 12% cache 2 GiB  1 stream  RTT 200 ms";
        assert_eq!(text, whole);
        let unknown = Progress { bytes: bytes(Bytes::gib(2), None), ..Progress::default() };
        for narrow in [false, true] {
            let text = line(&unknown, &EtaEstimate::default(), Side::Get, narrow);
            assert_eq!(text, "0 bit/s  2 GiB  sock 0 B app 0%  0 streams");
        }
    }

    #[test]
    fn eighty_columns_show_the_end_and_the_three_buffers() {
        let odd = Bytes::new((1 << 40) - (1 << 26));
        let now = Progress {
            bytes: bytes(odd, Some(odd)),
            path: PathProgress { unread: odd, rwin: Some(Bytes::ZERO), ..PathProgress::default() },
            buffers: BufferProgress {
                buffered: Bytes::mib(64),
                app_buffer: Bytes::mib(64),
                dirty: Some(odd),
                writeback: Some(Bytes::ZERO),
            },
            ..Progress::default()
        };
        let text = line(&now, &pace(12_498_750_000, Some(odd)), Side::Get, true);
        let cache = "cache 1023.9 GiB";
        let name = short_name("a-long-name.tar.gz", super::super::drawing::SHORT_NAME);
        let shown = name.len() + " 100%  ".len() + super::super::drawing::SHORT_BAR;
        let end = text.find(cache).unwrap() + cache.len();
        assert!(shown + end <= 80, "{text}");
        assert!(text.contains("sock 100% app 100%") && text.contains("ETA 1:27"), "{text}");
    }

    #[test]
    fn several_files_have_a_line_for_all_of_them_and_names_no_control_characters() {
        for (files, known, text) in [
            (Some(10), None, "3 of 10 files done  5.00 Mbit/s  7 MiB"),
            (None, None, "3 files done  5.00 Mbit/s  7 MiB"),
            (Some(4), Some(14), "3 of 4 files done  50%  5.00 Mbit/s  ETA 0:11  7 MiB of 14 MiB"),
        ] {
            let known = known.map(Bytes::mib);
            assert_eq!(total(files, 3, Bytes::mib(7), known, Rate::bits_per_sec(5_000_000)), text);
        }
        assert_eq!(shown_name(Path::new("/d/a\x1b[2Jb\n")), "a?[2Jb?");
    }
}
