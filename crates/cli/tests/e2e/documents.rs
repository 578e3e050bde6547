//! The documents name what is there, and comments have one width.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::lab::root;

/// Returns the source files below a directory.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    found.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

#[test]
fn source_files_that_the_architecture_names_exist() {
    let (text, files) =
        (fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap(), sources(&root().join("crates")));
    let named: Vec<&str> = text.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs")).collect();
    assert!(named.len() > 50, "{named:?}");
    for name in named {
        assert!(files.iter().any(|file| file.ends_with(name)), "{name}");
    }
}

/// Tables, and what is fenced, have the width that they need.
#[test]
fn comments_are_at_most_100_columns_wide() {
    for file in sources(&root().join("crates")) {
        let (text, mut is_fenced) = (fs::read_to_string(&file).unwrap(), false);
        for (number, line) in (1..).zip(text.lines()) {
            let Some(comment) = line.trim_start().strip_prefix("//") else {
                is_fenced = false;
                continue;
            };
            let comment = comment.trim_start_matches(['/', '!']).trim_start();
            is_fenced ^= comment.starts_with("```");
            let is_wide = line.chars().count() > 100 && !is_fenced && !comment.starts_with('|');
            assert!(!is_wide, "{}:{number}: a comment of more than 100 columns", file.display());
        }
    }
}
