//! Heads that break the grammar, of which the end of the body is not in doubt.

use super::{ResponseHead, syntax, trim_text};
use crate::proto::http::header::is_token;
use crate::proto::{Malformed, number};

impl ResponseHead {
    /// Parses a head that the strict parser refuses.
    ///
    /// # Errors
    /// [`Malformed`] if a malformed line may state the end of the body.
    pub(super) fn parse_leniently(bytes: &[u8]) -> Result<Self, Malformed> {
        if Self::end(bytes, 0) != Some(bytes.len()) || bytes.contains(&0) {
            return Err(syntax("it holds a NUL, or does not end with its empty line"));
        }
        // A program on Windows that writes CR LF as text sends CR CR LF.
        let mut lines = bytes.split(|b| *b == b'\n').map(|line| without_cr(without_cr(line)));
        let (minor_version, status, reason) =
            lines.next().and_then(status_line).ok_or_else(|| syntax("it has no status line"))?;
        let mut fields: Vec<(String, Vec<u8>)> = Vec::new();
        let mut is_skipped = true;
        for line in lines.take_while(|line| !line.is_empty()) {
            let is_folded = line.starts_with(b" ") || line.starts_with(b"\t");
            let colon = line.iter().position(|b| *b == b':').filter(|_| !is_folded);
            let name = trim_blanks(&line[..colon.unwrap_or(0)]);
            let is_field = !name.is_empty() && name.iter().all(|b| is_token(*b));
            // A program in between may take a folded line, or what follows a CR, for a field of its
            // own.
            let mut parts = line.split(|b| *b == b'\r');
            let doubtful =
                if is_field { parts.skip(1).any(states_framing) } else { parts.any(states_framing) };
            let folds_framing = || fields.last().is_some_and(|(name, _)| states_framing(name.as_bytes()));
            if doubtful || (is_folded && !is_skipped && folds_framing()) {
                return Err(syntax("a malformed line may state the end of the body"));
            }
            if is_folded {
                // RFC 9112, section 5.2: a space replaces the fold.
                if let Some((_, value)) = fields.last_mut().filter(|_| !is_skipped) {
                    value.extend_from_slice(&[b" ", trim_blanks(line)].concat());
                }
                continue;
            }
            is_skipped = !is_field;
            if let Some(colon) = colon.filter(|_| is_field) {
                let name = String::from_utf8_lossy(name).into_owned();
                fields.push((name, trim_blanks(&line[colon + 1..]).to_vec()));
            }
        }
        Ok(Self { status, reason, minor_version, fields, is_malformed: true })
    }
}

/// Removes a CR at the end of a line.
fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Parses a status line with any blanks between its parts, or none before the reason: minor
/// version, status and reason.
///
/// Programs that answer with the head of another server pass its version on: 2 stands before a head
/// of version 1.1.
fn status_line(line: &[u8]) -> Option<(u8, u16, String)> {
    let line = String::from_utf8_lossy(line);
    let (protocol, rest) = line.split_once([' ', '\t'])?;
    let minor = match protocol.to_ascii_uppercase().strip_prefix("HTTP/")? {
        "2" | "2.0" => 1,
        version => {
            let minor = version.strip_prefix("1.").filter(|minor| minor.len() == 1)?;
            number(minor)?
        }
    };
    let (status, reason) = trim_text(rest).split_at_checked(3)?;
    let status = number(status).filter(|_| !reason.starts_with(|c: char| c.is_ascii_digit()))?;
    Some((minor, status, trim_text(reason).to_owned()))
}

/// Returns whether a line begins with the name of a field that states the end of the body, however
/// it is written.
fn states_framing(line: &[u8]) -> bool {
    let letters = line.iter().filter(|b| b.is_ascii_alphabetic()).map(u8::to_ascii_lowercase);
    let begins = |name: &[u8]| letters.clone().take(name.len()).eq(name.iter().copied());
    begins(b"contentlength") || begins(b"transferencoding")
}

/// Removes what [`trim_text`] removes.
fn trim_blanks(bytes: &[u8]) -> &[u8] {
    let is_blank = |b: &u8| matches!(b, b' ' | b'\t');
    let start = bytes.iter().position(|b| !is_blank(b)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|b| !is_blank(b)).map_or(start, |last| last + 1);
    &bytes[start..end]
}
