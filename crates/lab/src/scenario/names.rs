//! Names that become file names.

use std::collections::HashSet;

const LONGEST: usize = 100;

/// Refuses a name that is none for a file.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.starts_with('.') || !name.chars().all(fits) {
        return Err(format!("the name '{name}' is not made of letters, digits, '-', '_' and '.'"));
    }
    if name.len() > LONGEST {
        return Err(format!("the name '{name}' is longer than {LONGEST} letters"));
    }
    Ok(())
}

/// Makes a name of a text that may be none, as near to it as may be.
pub(super) fn fitting(text: &str) -> String {
    let name: String = text.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    let name: String = name.trim_start_matches('.').chars().take(LONGEST).collect();
    if name.is_empty() { "scenario".to_owned() } else { name }
}

/// Takes a name that nothing has yet: the one that is wanted, else with a number behind it.
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
    fn what_does_not_fit_is_made_to() {
        for (text, name) in [
            ("table-2.b", "table-2.b"),
            ("my test (2)", "my_test__2_"),
            ("..x", "x"),
            ("é", "_"),
            (".", "scenario"),
        ] {
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
