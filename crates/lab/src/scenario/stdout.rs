//! Parses the numbers that a command prints.

use std::io;
use std::path::Path;

use serde_json::{Map, Value};

use super::last_output_line::tail;

/// Bytes read from the end of the output.
const PARSED_TAIL: u64 = 1 << 20;

/// Returns the numbers of the last line from byte `start` that is a JSON object; empty without such
/// a line.
///
/// # Errors
/// Fails if the file is unreadable.
pub(super) fn numbers(path: &Path, start: u64) -> io::Result<Vec<(String, f64)>> {
    Ok(numbers_of(&tail(path, start, PARSED_TAIL)?))
}

/// Fields of `longhaul get --json` that are no measurements.
const MARKS: [&str; 2] = ["at", "job"];

fn numbers_of(text: &str) -> Vec<(String, f64)> {
    let object = |line: &str| serde_json::from_str::<Map<String, Value>>(line).ok();
    let mut last = text.lines().rev().find_map(object).unwrap_or_default();
    last.retain(|name, _| !MARKS.contains(&name.as_str()));
    last.into_iter().filter_map(|(name, value)| Some(in_bits(name, value.as_f64()?))).collect()
}

/// Converts curl's bytes per second to bits per second: `goodput_Bps` becomes `goodput_bps`.
fn in_bits(name: String, value: f64) -> (String, f64) {
    match name.strip_suffix("_Bps") {
        Some(stem) => (format!("{stem}_bps"), value * 8.0),
        None => (name, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_from_last_json_object() {
        let text = "curl\n{\"goodput_bps\":1}\n{\"goodput_bps\":2.5,\"who\":\"me\",\"retransmits\":null}\n[3]\nbye\n";
        assert_eq!(numbers_of(text), [("goodput_bps".to_owned(), 2.5)]);
        assert_eq!(numbers_of("{\"goodput_Bps\": 125}"), [("goodput_bps".to_owned(), 1000.0)]);
        let done = "{\"at\":3.1,\"job\":1,\"event\":\"done\",\"bytes\":7}\n";
        assert_eq!(numbers_of(done), [("bytes".to_owned(), 7.0)]);
        assert!(numbers_of("").is_empty());
        assert!(numbers_of("{\"half\": 1").is_empty());
    }

    #[test]
    fn only_the_end_of_a_long_output_is_read() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let noise = "x".repeat(PARSED_TAIL as usize);
        io::Write::write_all(&mut file, format!("{{\"a\":1}}\n{noise}\n{{\"b\":2}}").as_bytes()).unwrap();
        assert_eq!(numbers(file.path(), 0).unwrap(), [("b".to_owned(), 2.0)]);
        assert!(numbers(file.path(), PARSED_TAIL + 16).unwrap().is_empty());
    }
}
