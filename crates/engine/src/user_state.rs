//! The directory of a user's persistent state (XDG Base Directory Specification).

use std::ffi::OsString;
use std::path::PathBuf;

/// The name of the file of path measurements.
const PATHS: &str = "paths.json";

/// Returns this program's state directory; `None` if the environment defines none.
pub fn directory() -> Option<PathBuf> {
    directory_of(|name| std::env::var_os(name))
}

/// Returns the path of the file of path measurements.
pub fn path_memory() -> Option<PathBuf> {
    Some(directory()?.join(PATHS))
}

fn directory_of(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // The specification requires that relative paths are ignored. HOME=/dev/null, as of services,
    // is no home.
    let is_usable = |path: &PathBuf| path.is_absolute() && (path.is_dir() || !path.exists());
    let absolute = |name| variable(name).map(PathBuf::from).filter(is_usable);
    let base = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(base.join("longhaul"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_directory_follows_xdg_variables() {
        let of = |set: &[(&str, &str)]| {
            directory_of(|name| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
            })
        };
        assert_eq!(of(&[("HOME", "/h")]), Some("/h/.local/state/longhaul".into()));
        assert_eq!(of(&[("HOME", "/h"), ("XDG_STATE_HOME", "/s")]), Some("/s/longhaul".into()));
        assert_eq!(of(&[("HOME", "/h"), ("XDG_STATE_HOME", "s")]), of(&[("HOME", "/h")]));
        assert_eq!([of(&[("HOME", "")]), of(&[("HOME", "/dev/null")])], [None, None]);
    }
}
