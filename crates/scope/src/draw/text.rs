//! Text in a picture: what it may hold, and how wide it is.

use std::sync::LazyLock;

use skrifa::instance::{LocationRef, Size};
use skrifa::{FontRef, MetadataProvider};

/// Roboto Regular, reduced to Latin letters.
pub(super) const REGULAR: &[u8] = include_bytes!("../../assets/roboto/Roboto-Regular-latin.ttf");
/// Roboto Medium, the same.
pub(super) const MEDIUM: &[u8] = include_bytes!("../../assets/roboto/Roboto-Medium-latin.ttf");

static FONT: LazyLock<Option<FontRef<'static>>> = LazyLock::new(|| FontRef::new(REGULAR).ok());

/// Other fonts, that a viewer without Roboto takes, are a little wider.
const SLACK: f64 = 1.04;

/// Returns how wide a line of text is at `size`.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|letter| advance(letter).unwrap_or(1.0)).sum::<f64>() * size * SLACK
}

/// Returns a letter's width in units of the font's size; `None` where the font lacks it.
fn advance(letter: char) -> Option<f64> {
    let font = FONT.as_ref()?;
    let glyph = font.charmap().map(letter)?;
    font.glyph_metrics(Size::new(1.0), LocationRef::default()).advance_width(glyph).map(f64::from)
}

/// Cuts a line to `room` at `size`, with an ellipsis for what went.
pub(super) fn cut(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let mut kept: String = String::new();
    for letter in text.chars() {
        kept.push(letter);
        if width(&kept, size) + width("…", size) > room {
            kept.pop();
            break;
        }
    }
    kept.trim_end().to_owned() + "…"
}

/// Breaks text at spaces into lines of at most `room` at `size`; a longer word is cut.
pub(super) fn wrap(text: &str, size: f64, room: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let longer = lines.last().map(|line| format!("{line} {word}"));
        match (longer.filter(|line| width(line, size) <= room), lines.last_mut()) {
            (Some(longer), Some(line)) => *line = longer,
            _ => lines.push(cut(word, size, room)),
        }
    }
    lines
}

/// Escapes text for XML and HTML, attributes included; what neither may hold becomes U+FFFD.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            '\u{FFFE}' | '\u{FFFF}' => escaped.push('\u{FFFD}'),
            letter if letter.is_control() => escaped.push('\u{FFFD}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_fonts_hold_every_letter_that_the_figures_use() {
        for font in [REGULAR, MEDIUM] {
            let font = FontRef::new(font).unwrap();
            for letter in (' '..='~').chain("µ×–…≤≥−±·äÖé".chars()) {
                assert!(font.charmap().map(letter).is_some(), "{letter}");
            }
        }
        assert!(width("iiii", 10.0) < width("MMMM", 10.0));
        assert!((20.0..25.0).contains(&width("1234", 10.0)), "{}", width("1234", 10.0));
    }

    #[test]
    fn long_lines_are_cut_or_wrapped() {
        assert_eq!(cut("short", 10.0, 100.0), "short");
        let name = cut(&"long ".repeat(100), 10.0, 100.0);
        assert!(name.ends_with('…') && width(&name, 10.0) <= 100.0, "{name}");
        assert_eq!(cut("日本語日本語日本語", 10.0, 30.0), "日本…");
        let lines = wrap(&"word ".repeat(30), 10.0, 100.0);
        assert!(lines.len() > 2 && lines.iter().all(|line| width(line, 10.0) <= 100.0), "{lines:?}");
        assert_eq!(wrap(&"x".repeat(999), 10.0, 100.0).len(), 1);
        assert!(wrap("", 10.0, 100.0).is_empty());
    }

    #[test]
    fn nothing_breaks_out_of_its_element() {
        assert_eq!(escape("<a href='x'>\"&"), "&lt;a href=&#39;x&#39;&gt;&quot;&amp;");
        assert_eq!(escape("a\0b\u{1b}c\nd\u{FFFF}"), "a\u{FFFD}b\u{FFFD}c d\u{FFFD}");
    }
}
