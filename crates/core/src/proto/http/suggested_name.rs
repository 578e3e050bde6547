//! File names suggested by a server, sanitised.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The longest name kept, in bytes: less than NAME_MAX (255), so that a temporary suffix fits.
const MAX_NAME: usize = 200;

/// A file name that is safe to create in the current directory.
///
/// Never empty, ".", "..", hidden or an option ("-rf"); contains no separator, control character or
/// character that changes the direction of text; at most 200 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FileName(String);

impl FileName {
    /// Sanitises `suggested`: its last path component without misleading characters; `None` if the
    /// result is empty.
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

    /// Returns the name in a Content-Disposition value (RFC 6266): `filename*` takes precedence
    /// over `filename`, which is decoded as browsers do.
    pub fn from_disposition(value: &[u8]) -> Option<Self> {
        let parameters = parameters(value);
        let find = |name: &str| parameters.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v);
        let extended = find("filename*").and_then(|v| decode_extended(v));
        extended
            .and_then(|name| Self::sanitise(&name))
            .or_else(|| find("filename").and_then(|v| Self::sanitise(&decode_plain(v))))
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
    decode_charset(charset, bytes)
}

/// Decodes what servers write into `filename`: encoded words (RFC 2047), or percent-encoded UTF-8.
fn decode_plain(value: &[u8]) -> String {
    let plain = text(value);
    if let Some(decoded) = decode_words(&plain) {
        return decoded;
    }
    let decoded = percent_encoding::percent_decode(value).decode_utf8();
    decoded.map_or(plain, |decoded| decoded.into_owned())
}

/// Decodes the encoded words of a text, such as `=?UTF-8?B?w6Q=?=.zip`; `None` if it has none, or
/// one of an unknown charset.
fn decode_words(text: &str) -> Option<String> {
    let (mut decoded, mut rest, mut found) = (String::new(), text, false);
    while let Some((before, word)) = rest.split_once("=?") {
        let mut parts = word.splitn(3, '?');
        let (charset, coding, after) = (parts.next()?, parts.next()?, parts.next()?);
        let (content, after) = after.split_once("?=")?;
        // Blanks between two words are not part of the text.
        if !found || !before.trim().is_empty() {
            decoded.push_str(before);
        }
        let bytes = match coding {
            "B" | "b" => STANDARD.decode(content).ok()?,
            "Q" | "q" => {
                let percent = content.replace('%', "%25").replace('_', " ").replace('=', "%");
                percent_encoding::percent_decode_str(&percent).collect()
            }
            _ => return None,
        };
        decoded.push_str(&decode_charset(charset, bytes)?);
        (rest, found) = (after, true);
    }
    found.then(|| decoded + rest)
}

/// Decodes UTF-8, with ASCII as part of it, or Latin-1; `None` for other charsets.
fn decode_charset(charset: &str, bytes: Vec<u8>) -> Option<String> {
    match charset.to_ascii_lowercase().as_str() {
        "utf-8" | "utf8" | "us-ascii" => String::from_utf8(bytes).ok(),
        "iso-8859-1" => Some(bytes.into_iter().map(char::from).collect()),
        _ => None,
    }
}

/// Splits `type; name=value; name="quoted \" value"` into names and values; the type, which has no
/// `=`, is dropped.
///
/// A backslash escapes only a quote and itself: servers send the paths of Windows unescaped.
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
                let escaped = bytes.next_if(|next| b == b'\\' && matches!(next, b'"' | b'\\'));
                content.push(escaped.unwrap_or(b));
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
            ("attachment; filename*=UTF8''%e2%82%ac.txt", "€.txt"),
            ("attachment; filename=\"%EC%82%AC_100%.jpg\"", "사_100%.jpg"),
            ("attachment; filename=\"%E4.txt\"", "%E4.txt"),
            ("attachment; filename=\"=?UTF-8?B?5pel5pys6Kqe?=.zip\"", "日本語.zip"),
            ("attachment; filename=\"=?utf-8?Q?a=C3=A4_%?= =?ISO-8859-1?q?=E4?=\"", "aä %ä"),
            ("attachment; filename=\"=?UTF-8?B?Li4vLi4veA==?=\"", "x"),
            ("attachment; filename=\"=?koi8-r?B?5pel?=\"", "=?koi8-r?B?5pel?="),
            ("attachment; filename=\"C:\\Users\\me\\f.zip\"", "f.zip"),
            ("attachment; filename=\"..%2f..%2fevil\"", "evil"),
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
