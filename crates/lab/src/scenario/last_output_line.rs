//! Quotes the last line of a failed command's output for an error message.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Maximum characters of the quoted line.
const MAX_QUOTED_LINE: usize = 200;
/// Bytes read from the end of a file.
const QUOTED_TAIL: u64 = 4096;

/// Quotes the last line of the first non-empty file among a command's output files.
pub(super) fn quote(files: &[&Path]) -> String {
    let said = files.iter().find_map(|path| Some((path, last_line(path).ok()??)));
    match (said, files.first()) {
        (Some((path, line)), _) => format!("its output is in {}: '{line}'", path.display()),
        (None, Some(path)) => format!("no output: {} is empty", path.display()),
        (None, None) => "no output".to_owned(),
    }
}

fn last_line(path: &Path) -> io::Result<Option<String>> {
    Ok(last_line_of(&tail(path, 0, QUOTED_TAIL)?))
}

/// Returns the last bytes of a file, at most `most` and none before `start`, as text.
pub(super) fn tail(path: &Path, start: u64, most: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(most).max(start)))?;
    let mut tail = Vec::new();
    file.take(most).read_to_end(&mut tail)?;
    Ok(String::from_utf8_lossy(&tail).into_owned())
}

/// Returns the last line without control characters; a carriage return ends a line, as in progress
/// lines.
fn last_line_of(text: &str) -> Option<String> {
    let line = text.rsplit(['\n', '\r']).map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().filter(|c| !c.is_control()).take(MAX_QUOTED_LINE).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_non_empty_line_is_quoted() {
        assert_eq!(last_line_of("one\ntwo: no\x1b room\n\n  \n"), Some("two: no room".to_owned()));
        assert_eq!(last_line_of("10 %\r20 %\r"), Some("20 %".to_owned()));
        assert_eq!(last_line_of(" \n"), None);
        assert_eq!(last_line_of(&"x".repeat(5000)).map(|line| line.len()), Some(MAX_QUOTED_LINE));
    }

    #[test]
    fn first_non_empty_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let [absent, empty, full] = ["absent", "empty", "full"].map(|name| dir.path().join(name));
        std::fs::write(&empty, "").unwrap();
        std::fs::write(&full, "x".repeat(9000) + "\nno such host\n").unwrap();
        let quoted = quote(&[&absent, &empty, &full]);
        assert_eq!(quoted, format!("its output is in {}: 'no such host'", full.display()));
        assert_eq!(quote(&[&empty, &absent]), format!("no output: {} is empty", empty.display()));
    }
}
