//! A server's explanation of a refusal: a short text in the body of its answer.

use longhaul_core::proto::http::ResponseHead;
use longhaul_core::units::Bytes;

use crate::source::http::connection::Connection;

/// The maximum length shown of a body.
const SHOWN: Bytes = Bytes::kib(1);

/// Reads the explanation from the body of a refusal as one line; `None` for any other answer, and
/// if the body is neither plain text nor JSON.
pub(crate) fn read_explanation(head: &ResponseHead, connection: &mut Connection) -> Option<String> {
    if head.status() < 400 || !is_text(head) {
        return None;
    }
    let front = connection.read_front(SHOWN);
    let is_cut = front.len() == SHOWN.as_usize();
    let text = String::from_utf8_lossy(&front);
    // Truncation may also have cut a character.
    one_line(head, text.trim_end_matches(char::REPLACEMENT_CHARACTER), is_cut)
}

/// Returns whether a body is readable as plain text.
fn is_text(head: &ResponseHead) -> bool {
    let media_type = head.text("content-type").unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_encoded = head.text("content-encoding").is_some_and(|coding| coding != "identity");
    let is_json = media_type == "application/json" || media_type.ends_with("+json");
    !is_encoded && (media_type == "text/plain" || is_json)
}

/// Returns a text without `word` at its start.
fn without_word<'a>(text: &'a str, word: &str) -> &'a str {
    let rest = text.strip_prefix(word).filter(|rest| !rest.starts_with(char::is_alphanumeric));
    rest.filter(|_| !word.is_empty()).unwrap_or(text)
}

/// Converts a text to one line, without control characters, and without the status if repeated in
/// the text. Rejects markup.
fn one_line(head: &ResponseHead, text: &str, is_cut: bool) -> Option<String> {
    let (status, reason) = (head.status().to_string(), head.reason());
    let text = text.trim();
    let text = without_word(text, &status).trim_start();
    let text = without_word(text, reason);
    let text = text.trim_start_matches([':', ' ']);
    if text.starts_with('<') {
        return None;
    }
    let blank = |c: char| c.is_whitespace() || c.is_control();
    let words: Vec<_> = text.split(blank).filter(|word| !word.is_empty()).collect();
    let mut line = String::new();
    for c in words.join(" ").chars() {
        match c {
            '\'' | '"' | '\\' => line.push(c),
            // Marks that change the direction of a text.
            _ => line.extend(c.escape_debug()),
        }
    }
    let line = line.trim_end_matches('.');
    let rest = if is_cut { " ..." } else { "" };
    (!line.is_empty()).then(|| format!("{line}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explanation_is_one_line_of_text_or_json_without_control_characters() {
        let head = ResponseHead::parse(b"HTTP/1.1 507 Full\r\n\r\n").unwrap();
        for (text, shown) in [
            ("507 Full: the server's disk\n", Some("the server's disk")),
            ("Full.\n", None),
            ("5071 Fully booked", Some("5071 Fully booked")),
            ("no room\r\n\x1b[31mred\u{202e}\0", Some("no room [31mred\\u{202e}")),
            ("{\n  \"error\": \"C:\\\\x\"\n}", Some("{ \"error\": \"C:\\\\x\" }")),
            ("<!doctype html>\n<p>no", None),
            (" \n", None),
        ] {
            assert_eq!(one_line(&head, text, false).as_deref(), shown);
        }
        assert_eq!(one_line(&head, "a long st", true).as_deref(), Some("a long st ..."));
        for (fields, shown) in [
            ("Content-Type: text/plain; charset=utf-8", true),
            ("Content-Type: Application/JSON", true),
            ("Content-Type: application/problem+json", true),
            ("Content-Type: text/html", false),
            ("Content-Type: application/xml", false),
            ("Content-Type: text/plain\r\nContent-Encoding: gzip", false),
            ("X: y", false),
        ] {
            let head = format!("HTTP/1.1 403 No\r\n{fields}\r\n\r\n");
            assert_eq!(is_text(&ResponseHead::parse(head.as_bytes()).unwrap()), shown, "{fields}");
        }
    }
}
