//! The documents name what is there, and comments have one width.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::lab::root;

/// Returns the source files below a directory.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] });
    found.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

fn architecture() -> String {
    fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap()
}

/// Returns what a text of Markdown has between backticks.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns whether a source file has a function, a type, or a function and an `impl` of its type.
fn has(source: &str, name: &str) -> bool {
    let has_word = |text: &str, word: &str| {
        text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|found| found == word)
    };
    let (of, name) = name.rsplit_once("::").map_or((None, name), |(of, name)| (Some(of), name));
    let has_impl = |of: &str| source.lines().any(|line| line.starts_with("impl") && has_word(line, of));
    let name = name.split('<').next().unwrap_or_default();
    let has_name = match name.starts_with(char::is_lowercase) {
        true => ["(", "<"].iter().any(|next| source.contains(&format!("fn {name}{next}"))),
        false => has_word(source, name),
    };
    has_name && of.is_none_or(has_impl)
}

#[test]
fn source_files_that_the_architecture_names_exist() {
    let (text, files) = (architecture(), sources(&root().join("crates")));
    let named: Vec<&str> = code(&text).filter(|name| name.ends_with(".rs")).collect();
    assert!(named.len() > 50, "{named:?}");
    for name in named {
        assert!(files.iter().any(|file| file.ends_with(name)), "{name}");
    }
}

/// Each way has 16 steps, each with one file in bold, and states how many files it names. A folder
/// below `crates` is where the paths after it begin.
#[test]
fn ways_of_a_byte_name_files_and_what_is_in_them() {
    let text = architecture();
    for way in ["Get: network to disk", "Put and serve: disk to network"] {
        let section = text.split("\n## ").find_map(|section| section.strip_prefix(way)).unwrap();
        let (mut base, mut steps) = (root(), 0);
        let (mut files, mut in_bold) = (BTreeSet::new(), BTreeSet::new());
        for line in section.replace("\n   ", " ").lines() {
            let is_step = line.starts_with(&format!("{}. ", steps + 1));
            steps += usize::from(is_step);
            let mut source = String::new();
            for name in code(line) {
                let path = if name.starts_with("crates/") { root().join(name) } else { base.join(name) };
                if name.ends_with('/') {
                    assert!(path.is_dir(), "{way}: {name}");
                    base = if name.starts_with("crates/") { path } else { base };
                } else if name.ends_with(".rs") {
                    source = fs::read_to_string(&path).unwrap_or_else(|_| panic!("{way}: no file {name}"));
                    files.extend(is_step.then_some(path));
                } else if is_step && !name.starts_with("--") {
                    assert!(has(&source, name), "{way}, step {steps}: {name} is not in the file before it");
                }
            }
            if is_step {
                let bold: Vec<&str> =
                    code(line).filter(|name| line.contains(&format!("**`{name}`**"))).collect();
                assert_eq!(bold.len(), 1, "{way}, step {steps}");
                in_bold.extend(bold.into_iter().map(str::to_owned));
            }
        }
        assert_eq!((steps, in_bold.len()), (16, 16), "{way}");
        assert!(section.contains(&format!("{} files", files.len())), "{way}: {} files", files.len());
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
