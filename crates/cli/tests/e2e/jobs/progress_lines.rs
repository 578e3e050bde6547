//! Progress of several files on a terminal.

use std::time::Duration;

use crate::support::{get, program, slow_site, terminal};

const COLUMNS: usize = 140;

#[test]
fn each_file_has_a_line_and_all_have_a_total_that_is_gone_at_the_end() {
    let (server, _) = slow_site(Duration::ZERO, 8 << 20);
    let urls: Vec<_> = (1..=3).map(|number| server.url(&format!("/{}/{number}", 8 << 20))).collect();
    let line = format!("stty cols {COLUMNS}; {}", program(&format!("get {}", urls.join(" "))));
    let Some(ended) = terminal(&get(), &line, &[], None) else { return };
    let text = ended.ok().stdout;
    assert!(text.contains("of 3 files done"), "{text}");
    for number in 1..=3 {
        // Each file's line has the name, a bar and a percentage.
        assert!(text.contains(&format!("{number} ")), "{text}");
    }
    assert!(text.matches("of 8 MiB").count() >= 3, "{text}");
    // Only the results remain, one per file.
    let screen = screen(&text);
    let left: Vec<_> = screen.iter().filter(|line| !line.trim().is_empty()).collect();
    assert!(left.iter().all(|line| !line.contains("files done") && !line.contains("ETA")), "{left:#?}");
    assert!(left.len() >= 3, "{left:#?}");
}

/// Interprets terminal output; returns the final screen's lines.
fn screen(text: &str) -> Vec<String> {
    let mut lines: Vec<Vec<char>> = Vec::new();
    let (mut row, mut column) = (0usize, 0usize);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\n' => row += 1,
            '\r' => column = 0,
            '\x1b' => {
                let mut sequence = String::new();
                for part in characters.by_ref().skip(1) {
                    sequence.push(part);
                    if part.is_ascii_alphabetic() {
                        break;
                    }
                }
                let count = sequence.trim_end_matches(char::is_alphabetic).parse().unwrap_or(1);
                match sequence.chars().last() {
                    Some('A') => row = row.saturating_sub(count),
                    Some('B') => row += count,
                    Some('K') => {
                        let keep = if sequence.starts_with('2') { 0 } else { column };
                        lines.get_mut(row).into_iter().for_each(|line| line.truncate(keep));
                    }
                    _ => {}
                }
            }
            _ => {
                // A full line wraps at the next character.
                if column == COLUMNS {
                    (row, column) = (row + 1, 0);
                }
                if lines.len() <= row {
                    lines.resize(row + 1, Vec::new());
                }
                let line = &mut lines[row];
                if line.len() <= column {
                    line.resize(column + 1, ' ');
                }
                line[column] = character;
                column += 1;
            }
        }
    }
    lines.into_iter().map(|line| line.into_iter().collect()).collect()
}
