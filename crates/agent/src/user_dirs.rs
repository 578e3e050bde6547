//! The user's directory of downloads, as xdg-user-dirs stores it.

use std::path::{Path, PathBuf};

use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::input_file;

/// The largest file that is read.
const MAX_FILE: Bytes = Bytes::kib(64);

/// Returns the directory that the environment, or else `user-dirs.dirs`, names.
pub(crate) fn downloads(home: Option<&Path>) -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_file = || {
        let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(home?.join(".config")))?;
        let text = input_file::read(&config.join("user-dirs.dirs"), MAX_FILE, &Cancel::new()).ok()?;
        named(&String::from_utf8_lossy(&text), home?)
    };
    absolute("XDG_DOWNLOAD_DIR").or_else(of_file)
}

/// Returns the directory that a text of user-dirs.dirs(5) names:
/// `XDG_DOWNLOAD_DIR="$HOME/Downloads"`, or an absolute path.
fn named(text: &str, home: &Path) -> Option<PathBuf> {
    // The last assignment counts, as in a shell.
    let value = text.lines().rev().find_map(|line| {
        let value = line.trim().strip_prefix("XDG_DOWNLOAD_DIR=")?;
        value.strip_prefix('"')?.strip_suffix('"')
    })?;
    let (base, rest) = match value.strip_prefix("$HOME") {
        Some(rest) => (home, rest.strip_prefix('/').or(rest.is_empty().then_some(""))?),
        None => (Path::new("/"), value.strip_prefix('/')?),
    };
    let (mut path, mut escaped) = (String::new(), false);
    for character in rest.chars() {
        escaped = character == '\\' && !escaped;
        if !escaped {
            path.push(character);
        }
    }
    Some(base.join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_below_the_home_or_absolute() {
        for (text, directory) in [
            ("# comment\nXDG_DOWNLOAD_DIR=\"$HOME/Téléchargements\"\n", Some("/h/Téléchargements")),
            ("XDG_DOWNLOAD_DIR=\"/data/my \\\"files\\\"\"", Some("/data/my \"files\"")),
            ("XDG_DOWNLOAD_DIR=\"$HOME/a\"\nXDG_DOWNLOAD_DIR=\"$HOME/b\"", Some("/h/b")),
            ("XDG_DOWNLOAD_DIR=\"relative\"", None),
            ("XDG_DOWNLOAD_DIR=\"$HOMER/a\"", None),
            ("XDG_DESKTOP_DIR=\"$HOME/Desktop\"", None),
        ] {
            assert_eq!(named(text, Path::new("/h")), directory.map(PathBuf::from), "{text}");
        }
    }
}
