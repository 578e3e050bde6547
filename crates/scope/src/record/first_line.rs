//! Parses the first line of a record: format, version and header.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::error::RecordError;
use super::schema::{Header, MAGIC, VERSION};

/// Maximum bytes of the first line; a header has a few hundred.
pub(super) const LONGEST_HEADER: u64 = 64 << 10;

/// Parses the header; `path` names the file in errors.
pub(super) fn header(first: &[u8], path: PathBuf) -> Result<Header, RecordError> {
    #[derive(Deserialize)]
    struct FirstLine {
        record: String,
        version: Value,
    }
    if first.is_empty() {
        return Err(RecordError::Empty { path });
    }
    let mark = serde_json::from_slice::<FirstLine>(first).ok().filter(|mark| mark.record == MAGIC);
    let Some(mark) = mark else {
        let cut = !first.ends_with(b"\n") && first.starts_with(format!(r#"{{"record":"{MAGIC}""#).as_bytes());
        let why = match cut {
            true if first.len() as u64 >= LONGEST_HEADER => "its first line is too long",
            true => "it is cut off in its first line",
            false => "its first line does not say so",
        };
        return Err(RecordError::NotARecord { path, why: why.to_owned() });
    };
    match &mark.version {
        Value::Number(found) if found.as_f64().is_some_and(|found| found > f64::from(VERSION)) => {
            return Err(RecordError::Newer { path, found: found.to_string() });
        }
        Value::Number(found) if found.as_u64().is_some_and(|found| found > 0) => {}
        found => {
            let found: String = found.to_string().chars().take(40).collect();
            return Err(RecordError::NotARecord {
                path,
                why: format!("there is no version {found} of them"),
            });
        }
    }
    serde_json::from_slice(first)
        .map_err(|error| RecordError::NotARecord { path, why: format!("its first line is wrong: {error}") })
}
