//! Markdown tables, and their number formats.

use std::fmt::Write;

use longhaul_lab::scenario::Spread;

/// Formats a Markdown table; every row has as many cells as `head`.
pub(crate) fn markdown(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut text = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

/// Formats a spread as "median (minimum to maximum)", or as one value if all are equal.
pub(crate) fn spread(spread: Option<Spread>, digits: usize) -> String {
    match spread {
        None => "-".to_owned(),
        Some(Spread { median, min, max }) if min == max => format!("{median:.digits$}"),
        Some(Spread { median, min, max }) => {
            format!("{median:.digits$} ({min:.digits$} to {max:.digits$})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_tables_and_spreads() {
        let rows = [vec!["a".to_owned(), spread(Spread::of([1.0, 3.0, 2.0]), 1)]];
        assert_eq!(markdown(&["x", "y"], &rows), "| x | y |\n|---|---|\n| a | 2.0 (1.0 to 3.0) |\n");
        assert_eq!((spread(None, 2), spread(Spread::of([2.0]), 2)), ("-".to_owned(), "2.00".to_owned()));
    }
}
