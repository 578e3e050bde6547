//! Validates and creates file names.

use std::collections::HashSet;

const MAX_NAME_LENGTH: usize = 100;

/// Rejects a name that is no valid file name.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.starts_with('.') || !name.chars().all(fits) {
        return Err(format!("the name '{name}' is not made of letters, digits, '-', '_' and '.'"));
    }
    if name.len() > MAX_NAME_LENGTH {
        return Err(format!("the name '{name}' is longer than {MAX_NAME_LENGTH} letters"));
    }
    Ok(())
}

/// Converts a text to a similar, valid file name.
pub(super) fn fitting(text: &str) -> String {
    let name: String = text.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    let name: String = name.trim_start_matches('.').chars().take(MAX_NAME_LENGTH).collect();
    if name.is_empty() { "scenario".to_owned() } else { name }
}

/// Returns an unused name: `wanted`, or `wanted` with a number appended.
pub(super) fn unique(wanted: String, taken: &mut HashSet<String>) -> String {
    let mut numbered = (1..).map(|n| if n == 1 { wanted.clone() } else { format!("{wanted}-{n}") });
    numbered.find(|name| taken.insert(name.clone())).unwrap_or(wanted)
}

fn fits(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_characters_in_file_names_are_replaced() {
        for (text, name) in [("table-2.b", "table-2.b"), ("..x", "x"), ("é", "_"), (".", "scenario")] {
            assert_eq!(fitting(text), name);
            assert_eq!(check_name(name), Ok(()));
        }
        assert_eq!(check_name(&fitting(&"long".repeat(100))), Ok(()));
    }

    #[test]
    fn no_name_is_taken_twice() {
        let mut taken = HashSet::from(["a-2".to_owned()]);
        let mut take = |wanted: &str| unique(wanted.to_owned(), &mut taken);
        assert_eq!([take("a"), take("a"), take("b")], ["a", "a-3", "b"]);
    }
}
