//! The head of a server's reply (RFC 9112, section 4).

use std::fmt::Write;

use ::http::StatusCode;

/// A status line and header lines, in the order of their addition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyHead {
    status: u16,
    lines: String,
}

impl ReplyHead {
    /// Creates a head with a status code.
    pub fn new(status: u16) -> Self {
        Self { status, lines: String::new() }
    }

    /// Adds a header line. Control characters in `value` become spaces, so no value can add a line.
    pub fn add(&mut self, name: &str, value: &str) {
        self.lines.push_str(name);
        self.lines.push_str(": ");
        self.lines.extend(value.chars().map(|c| if c.is_control() { ' ' } else { c }));
        self.lines.push_str("\r\n");
    }

    /// Adds a header line and returns the head.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.add(name, value);
        self
    }

    /// Returns the status code.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Encodes the head with its final empty line.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = String::with_capacity(self.lines.len() + 40);
        // Writing to a String cannot fail.
        let _ = write!(text, "HTTP/1.1 {} {}\r\n{}\r\n", self.status, reason(self.status), self.lines);
        text.into_bytes()
    }
}

/// Returns the reason phrase of a status code that a file server sends (RFC 9110, section 15).
pub fn reason(status: u16) -> &'static str {
    match status {
        // As RFC 9110 has renamed them.
        413 => "Content Too Large",
        422 => "Unprocessable Content",
        _ => {
            StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason()).unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_is_encoded_without_injected_lines() {
        let head = ReplyHead::new(206).with("Content-Length", "2").with("X", "a\r\nEvil: b");
        let text = String::from_utf8(head.encode()).unwrap();
        assert_eq!(text, "HTTP/1.1 206 Partial Content\r\nContent-Length: 2\r\nX: a  Evil: b\r\n\r\n");
    }
}
