//! File names suggested by a server, sanitised.

use std::fmt;

/// The longest name kept, in bytes: less than NAME_MAX (255), so that a temporary suffix fits.
const MAX_NAME: usize = 200;

/// A file name that is safe to create in the current directory.
///
/// Never empty, ".", "..", hidden or an option ("-rf"); contains no separator, control character or character that
/// changes the direction of text; at most 200 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FileName(String);

impl FileName {
    /// Sanitises `suggested`: its last path component without misleading characters; `None` if the result is empty.
    pub fn sanitise(suggested: &str) -> Option<Self> {
        let last = suggested.rsplit(['/', '\\']).next().unwrap_or_default();
        let kept: String = last.chars().filter(|c| !c.is_control() && !misleading(*c)).collect();
        let trimmed = trim_end(kept.trim_start());
        if trimmed.trim_start_matches('.').is_empty() {
            return None;
        }
        let visible =
            if trimmed.starts_with(['.', '-']) { format!("_{trimmed}") } else { trimmed.to_owned() };
        Some(Self(trim_end(&shorten(&visible)).to_owned()))
    }

    /// Returns the name in a Content-Disposition value (RFC 6266): `filename*` takes precedence over `filename`.
    pub fn from_disposition(value: &[u8]) -> Option<Self> {
        let parameters = parameters(value);
        let find = |name: &str| parameters.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v);
        let extended = find("filename*").and_then(|v| decode_extended(v));
        extended
            .and_then(|name| Self::sanitise(&name))
            .or_else(|| find("filename").and_then(|v| Self::sanitise(&text(v))))
    }

    /// Returns the name in the last segment of a URL's path, percent-decoded.
    pub fn from_url_path(path: &str) -> Option<Self> {
        let last = path.rsplit('/').next().unwrap_or_default();
        let decoded: Vec<u8> = percent_encoding::percent_decode_str(last).collect();
        Self::sanitise(&text(&decoded))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns whether `c` hides text or reverses its direction ("exe.txt" displayed for "txt.exe").
fn misleading(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Removes trailing dots and white space, which Windows drops.
fn trim_end(name: &str) -> &str {
    name.trim_end_matches(|c: char| c == '.' || c.is_whitespace())
}

/// Truncates a long name but keeps a short extension.
fn shorten(name: &str) -> String {
    if name.len() <= MAX_NAME {
        return name.to_owned();
    }
    let extension = name.rfind('.').map(|dot| &name[dot..]).filter(|e| e.len() <= 20).unwrap_or("");
    let stem = &name[..name.len() - extension.len()];
    let cut = stem.floor_char_boundary(MAX_NAME - extension.len());
    format!("{}{extension}", &stem[..cut])
}

/// Decodes UTF-8, or else Latin-1: servers send both.
fn text(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes)
        .map_or_else(|_| bytes.iter().map(|b| char::from(*b)).collect(), std::borrow::ToOwned::to_owned)
}

/// Decodes `charset'language'percent-encoded` (RFC 8187) in UTF-8 or Latin-1.
fn decode_extended(value: &[u8]) -> Option<String> {
    let value = std::str::from_utf8(value).ok()?;
    let (charset, rest) = value.split_once('\'')?;
    let (_language, encoded) = rest.split_once('\'')?;
    let bytes: Vec<u8> = percent_encoding::percent_decode_str(encoded).collect();
    match charset.to_ascii_lowercase().as_str() {
        "utf-8" => String::from_utf8(bytes).ok(),
        "iso-8859-1" => Some(bytes.into_iter().map(char::from).collect()),
        _ => None,
    }
}

/// Splits `type; name=value; name="quoted \" value"` into names and values; the type, which has no `=`, is dropped.
fn parameters(value: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut bytes = value.iter().copied().peekable();
    loop {
        let mut name = Vec::new();
        let mut ended_by = None;
        for b in bytes.by_ref() {
            if b == b';' || b == b'=' {
                ended_by = Some(b);
                break;
            }
            name.push(b);
        }
        match ended_by {
            None => return found,
            Some(b'=') => {}
            Some(_) => continue,
        }
        while bytes.next_if(|b| *b == b' ' || *b == b'\t').is_some() {}
        let mut content = Vec::new();
        if bytes.next_if_eq(&b'"').is_some() {
            while let Some(b) = bytes.next().filter(|b| *b != b'"') {
                content.push(if b == b'\\' { bytes.next().unwrap_or(b) } else { b });
            }
            while bytes.next_if(|b| *b != b';').is_some() {}
        } else {
            content.extend(std::iter::from_fn(|| bytes.next_if(|b| *b != b';')));
            content = content.trim_ascii().to_vec();
        }
        bytes.next_if_eq(&b';');
        found.push((String::from_utf8_lossy(name.trim_ascii()).into_owned(), content));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(value: &str) -> Option<String> {
        FileName::from_disposition(value.as_bytes()).map(|n| n.0)
    }

    #[test]
    fn parameters_of_rfc_6266_are_parsed() {
        for (value, expected) in [
            ("attachment; filename=\"a b.iso\"", "a b.iso"),
            ("Attachment; FileName=plain.bin ; x=y", "plain.bin"),
            ("inline;filename=\"semi;colon \\\"q\\\".txt\"", "semi;colon \"q\".txt"),
            ("attachment; filename=\"euro.txt\"; filename*=UTF-8''%e2%82%ac.txt", "€.txt"),
            ("attachment; filename*=iso-8859-1'en'%A3.txt; filename=b", "£.txt"),
            ("attachment; filename*=koi8-r''%A3; filename=fallback", "fallback"),
        ] {
            assert_eq!(name(value).as_deref(), Some(expected), "{value}");
        }
        assert_eq!(FileName::from_disposition(b"a; filename=\"\xe4.txt\"").unwrap().as_str(), "ä.txt");
        for value in ["", "attachment", "attachment; filename=", "filename", "attachment; filename=\"\""] {
            assert_eq!(name(value), None, "{value}");
        }
    }

    #[test]
    fn hostile_names_stay_in_the_directory_and_long_ones_keep_their_extension() {
        for (given, expected) in [
            ("../../etc/passwd", "passwd"),
            ("..\\..\\boot.ini", "boot.ini"),
            ("/etc/cron.d/x", "x"),
            (".bashrc", "_.bashrc"),
            ("-rf", "_-rf"),
            ("a\0b\nc\x1b[31m", "abc[31m"),
            ("good\u{202e}txt.exe", "goodtxt.exe"),
            ("a\u{61c}b", "ab"),
            (" spaced. ", "spaced"),
            ("dots . . .", "dots"),
        ] {
            assert_eq!(FileName::sanitise(given).unwrap().as_str(), expected, "{given:?}");
        }
        for given in ["", ".", "..", "...", "a/", "a/..", "\0", "  ", "\u{feff}."] {
            assert_eq!(FileName::sanitise(given), None, "{given:?}");
        }
        assert_eq!(FileName::from_url_path("/d/..%2f..%2Fpasswd").unwrap().as_str(), "passwd");
        assert_eq!(FileName::from_url_path("/"), None);
        let cut = FileName::sanitise(&format!("{}.tar.zst", "é".repeat(300))).unwrap();
        assert!(cut.0.len() <= MAX_NAME && cut.0.ends_with(".zst"));
        let cut = FileName::sanitise(&format!("{}. . .{}", "a".repeat(195), "b".repeat(100))).unwrap();
        assert_eq!(cut.0, "a".repeat(195));
    }
}
