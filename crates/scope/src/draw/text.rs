//! Text in a picture: width, glyph outlines, truncation and escaping.

use std::sync::LazyLock;

use skrifa::instance::{LocationRef, Size};
use skrifa::outline::DrawSettings;
use skrifa::outline::pen::SvgPen;
use skrifa::{FontRef, GlyphId, MetadataProvider};

/// Roboto Regular, reduced to Latin glyphs.
const ROBOTO: &[u8] = include_bytes!("../../assets/roboto/Roboto-Regular-latin.ttf");

static FONT: LazyLock<Option<FontRef<'static>>> = LazyLock::new(|| FontRef::new(ROBOTO).ok());

/// Fallback fonts of a viewer without Roboto are slightly wider.
const SLACK: f64 = 1.04;

/// Returns the width of a line of text at `size`.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let letter = |letter| glyph(letter).map_or(1.0, |(_, advance)| f64::from(advance));
    text.chars().map(letter).sum::<f64>() * size * SLACK
}

/// Returns the glyphs of a line of text at `size`, each with its offset and its outline in SVG path
/// syntax, y growing upwards; and the width of the line.
///
/// A glyph missing from the font becomes a question mark.
pub(super) fn outlines(text: &str, size: f32) -> (Vec<(f32, String)>, f32) {
    let (mut glyphs, mut width) = (Vec::new(), 0.0);
    let Some(font) = FONT.as_ref() else { return (glyphs, width) };
    for letter in text.chars() {
        let Some((glyph, advance)) = glyph(letter).or_else(|| self::glyph('?')) else { continue };
        let mut pen = SvgPen::new();
        if let Some(outline) = font.outline_glyphs().get(glyph) {
            // Fails only on a damaged font; the font is compiled in.
            let _ = outline.draw(DrawSettings::unhinted(Size::new(size), LocationRef::default()), &mut pen);
        }
        glyphs.push((width, pen.to_string()));
        width += advance * size;
    }
    (glyphs, width)
}

/// Returns a letter's glyph and its width in font units; `None` if the font lacks it.
fn glyph(letter: char) -> Option<(GlyphId, f32)> {
    let font = FONT.as_ref()?;
    let glyph = font.charmap().map(letter)?;
    let advance = font.glyph_metrics(Size::new(1.0), LocationRef::default()).advance_width(glyph)?;
    Some((glyph, advance))
}

/// Truncates a line to `room` at `size`, with an ellipsis.
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

/// Wraps text at spaces into lines of at most `room` at `size`; truncates longer words.
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

/// Escapes text for XML and HTML, attributes included; characters that neither allows become
/// U+FFFD.
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
    fn the_font_holds_every_letter_that_the_figures_use() {
        for letter in (' '..='~').chain("µ×–…≤≥−±·äÖé".chars()) {
            assert!(glyph(letter).is_some(), "{letter}");
        }
        assert!(width("iiii", 10.0) < width("MMMM", 10.0));
        assert!((20.0..25.0).contains(&width("1234", 10.0)), "{}", width("1234", 10.0));
    }

    #[test]
    fn letters_stand_side_by_side_above_their_line() {
        let ((one, width_of_one), (two, width_of_two)) = (outlines("a", 100.0), outlines("aa", 100.0));
        assert_eq!(width_of_two, 2.0 * width_of_one);
        assert_eq!(two, [(0.0, one[0].1.clone()), (width_of_one, one[0].1.clone())]);
        let bounds = zeno::bounds(one[0].1.as_str(), zeno::Fill::NonZero, None);
        let (low, high) = (bounds.min.y, bounds.max.y);
        assert!(low >= -2.0 && high > 40.0 && bounds.max.x < width_of_one, "{bounds:?}");
        let (unknown, width) = outlines("日", 100.0);
        assert!(width > 0.0 && !unknown[0].1.is_empty());
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
