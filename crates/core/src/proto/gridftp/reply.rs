//! Incremental parser of the replies on the control connection (RFC 959, section 4.2).

use std::fmt;

use crate::proto::Malformed;

/// The longest accepted line of a reply. A TLS record of 16 KiB in base64, as sent with GSI, has 22
/// KiB.
pub const MAX_LINE: usize = 64 << 10;

/// The largest accepted reply in bytes; the longest real replies are feature lists and error
/// traces, below 8 KiB.
pub const MAX_REPLY: usize = 256 << 10;

/// The largest accepted number of lines of a reply.
const MAX_LINES: usize = 4096;

/// A complete reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The code, from 100 to 699.
    pub code: u16,
    /// The text of the lines without codes, at least one line. Bytes that are not UTF-8 are
    /// replaced.
    pub lines: Vec<String>,
}

impl Reply {
    /// Returns whether another reply follows (1yz).
    pub fn is_preliminary(&self) -> bool {
        self.code / 100 == 1
    }

    /// Returns whether the command has completed (2yz).
    pub fn is_positive(&self) -> bool {
        self.code / 100 == 2
    }

    /// Returns whether the server expects a further command (3yz).
    pub fn is_intermediate(&self) -> bool {
        self.code / 100 == 3
    }

    /// Returns whether the command failed but may succeed later (4yz).
    pub fn is_transient(&self) -> bool {
        self.code / 100 == 4
    }

    /// Returns whether the command failed permanently (5yz).
    pub fn is_permanent(&self) -> bool {
        self.code / 100 == 5
    }

    /// Returns whether the reply contains a protected reply (6yz, RFC 2228, section 5).
    pub fn is_protected(&self) -> bool {
        self.code / 100 == 6
    }

    /// Returns the text of the last line, usually the only one.
    pub fn last_line(&self) -> &str {
        self.lines.last().map_or("", String::as_str)
    }
}

impl fmt::Display for Reply {
    /// Formats the code and up to 300 characters of text on one line, without control characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        let texts = self.lines.iter().map(|line| line.trim()).filter(|line| !line.is_empty());
        let text = texts.collect::<Vec<_>>().join("; ");
        if !text.is_empty() {
            f.write_str(" ")?;
        }
        let shown = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        text.chars().take(300).try_for_each(|c| write!(f, "{}", shown(c)))
    }
}

/// Parses replies from the bytes of a control connection, which may be split at any byte.
///
/// After an error the connection cannot be used, because the start of the next reply is unknown.
#[derive(Debug, Default)]
pub struct ReplyReader {
    input: Vec<u8>,
    /// The number of bytes of `input` that contain no line feed.
    searched: usize,
    code: Option<u16>,
    lines: Vec<String>,
    /// The bytes of the parsed lines of the current reply.
    read: usize,
}

impl ReplyReader {
    /// Adds received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Returns whether there are received bytes that belong to no returned reply.
    ///
    /// There must be none when TLS begins on the connection: they were sent in clear and could be
    /// an attacker's.
    pub fn has_pending(&self) -> bool {
        !self.input.is_empty() || self.code.is_some()
    }

    /// Returns the next complete reply; `None` if more bytes are needed.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not a reply, or a reply is too long.
    pub fn next_reply(&mut self) -> Result<Option<Reply>, Malformed> {
        let mut used = 0;
        let reply = loop {
            let rest = &self.input[used..];
            let Some(at) = rest[self.searched..].iter().position(|b| *b == b'\n') else {
                self.searched = rest.len();
                let too_long = rest.len() > MAX_LINE;
                break if too_long { Err(line_too_long()) } else { Ok(None) };
            };
            let end = self.searched + at;
            self.searched = 0;
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]).to_vec();
            used += end + 1;
            match self.line(&line) {
                Ok(None) => {}
                done => break done,
            }
        };
        self.input.drain(..used);
        reply
    }

    /// Parses one line; returns the reply if the line completes it.
    fn line(&mut self, line: &[u8]) -> Result<Option<Reply>, Malformed> {
        if line.len() > MAX_LINE {
            return Err(line_too_long());
        }
        self.read += line.len();
        if self.read > MAX_REPLY || self.lines.len() >= MAX_LINES {
            let limit = MAX_REPLY >> 10;
            let why = format!("the server sent a reply of more than {limit} KiB or {MAX_LINES} lines");
            return Err(Malformed::new(why));
        }
        let coded = coded_line(line);
        let Some(code) = self.code.or(coded.map(|(code, ..)| code)) else {
            let text: String = String::from_utf8_lossy(line).chars().take(80).collect();
            let text = text.escape_debug();
            let why = format!("the server sent '{text}' where a reply with a three-digit code was expected");
            return Err(Malformed::new(why));
        };
        // Within a multi-line reply, a line with another code is text.
        let (last, text) = match coded {
            Some((own, last, text)) if own == code => (last, text),
            _ => (false, line),
        };
        self.code = Some(code);
        self.lines.push(String::from_utf8_lossy(text).into_owned());
        if !last {
            return Ok(None);
        }
        (self.code, self.read) = (None, 0);
        Ok(Some(Reply { code, lines: std::mem::take(&mut self.lines) }))
    }
}

fn line_too_long() -> Malformed {
    Malformed::new(format!("the server sent a reply line of more than {} KiB", MAX_LINE >> 10))
}

/// Splits `ddd text`, `ddd-text` and `ddd`; the boolean is false for `ddd-text`, the only form that
/// does not end a reply.
fn coded_line(line: &[u8]) -> Option<(u16, bool, &[u8])> {
    let (digits, rest) = line.split_at_checked(3)?;
    if !matches!(digits, [b'1'..=b'6', b'0'..=b'9', b'0'..=b'9']) {
        return None;
    }
    let code = digits.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    match rest.split_first() {
        None => Some((code, true, rest)),
        Some((b' ', text)) => Some((code, true, text)),
        Some((b'-', text)) => Some((code, false, text)),
        Some(_) => None,
    }
}

#[cfg(test)]
impl Reply {
    pub(super) fn of(code: u16, lines: &[&str]) -> Self {
        Self { code, lines: lines.iter().map(|line| (*line).to_owned()).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Result<Vec<Reply>, Malformed> {
        let (mut reader, mut replies) = (ReplyReader::default(), Vec::new());
        for piece in pieces {
            reader.feed(piece);
            while let Some(reply) = reader.next_reply()? {
                replies.push(reply);
            }
        }
        Ok(replies)
    }

    const SESSION: &[u8] =
        b"220 ready\r\n331-Password\r\n331-please\n331 now\r\n211-Extensions:\r\n SIZE\r\n 211 x\r\n\
        226 not the end\r\n211 End\r\n226\r\n500-Command failed\r\n500-more\r\n500-\r\n500 End.\r\n";

    #[test]
    fn replies_of_one_and_several_lines_are_parsed() {
        let expected = vec![
            Reply::of(220, &["ready"]),
            Reply::of(331, &["Password", "please", "now"]),
            Reply::of(211, &["Extensions:", " SIZE", " 211 x", "226 not the end", "End"]),
            Reply::of(226, &[""]),
            Reply::of(500, &["Command failed", "more", "", "End."]),
        ];
        for cut in 0..SESSION.len() {
            let (front, back) = SESSION.split_at(cut);
            assert_eq!(read(&[front, back]).as_ref(), Ok(&expected), "split at {cut}");
        }
    }

    #[test]
    fn replies_without_a_code_or_an_end_are_refused() {
        for text in ["HTTP/1.1 400 Bad", "", "22", "2200 a", "099 a", "700 a", " 220 a"] {
            let error = read(&[text.as_bytes(), b"\r\n"]).unwrap_err().to_string();
            assert!(error.contains(&format!("'{text}' where a reply")), "{error}");
        }
        let line = vec![b'2'; MAX_LINE + 1];
        assert_eq!(read(&[&line]), Err(line_too_long()));
        let lines = ["220-".to_owned() + &"x".repeat(1000) + "\r\n", "y".repeat(1000) + "\r\n"];
        let endless = lines[0].clone() + &lines[1].repeat(MAX_REPLY / 1000 + 1);
        let short = "220-\r\n".repeat(MAX_LINES + 1);
        for text in [endless, short] {
            assert!(read(&[text.as_bytes()]).is_err_and(|error| error.to_string().contains("4096 lines")));
        }
    }

    #[test]
    fn pending_bytes_are_reported() {
        let mut reader = ReplyReader::default();
        reader.feed(b"234 go\r\n");
        assert_eq!(reader.next_reply(), Ok(Some(Reply::of(234, &["go"]))));
        assert!(!reader.has_pending());
        reader.feed(b"230-logged");
        assert!(reader.has_pending() && reader.next_reply() == Ok(None));
        reader.feed(b"\r\n");
        assert!(reader.next_reply() == Ok(None) && reader.has_pending());
    }

    #[test]
    fn first_digit_determines_the_class_and_control_characters_are_not_shown() {
        assert_eq!(Reply::of(550, &["a\x1b[2J", "", " b "]).to_string(), "550 a\u{fffd}[2J; b");
        assert_eq!(Reply::of(226, &[""]).to_string(), "226");
        let of = |code| Reply::of(code, &[""]);
        assert!(of(150).is_preliminary() && of(226).is_positive() && of(331).is_intermediate());
        assert!(of(425).is_transient() && of(550).is_permanent() && of(632).is_protected());
        assert!(!of(550).is_transient() && !of(150).is_positive());
    }
}
