//! The user's systemd unit, which starts the agent with the session.

use std::io;
use std::path::{Path, PathBuf};

/// The unit's name.
pub const NAME: &str = "longhaul-agent.service";
/// The packaged unit, for a program in /usr/bin.
const PACKAGED: &str = include_str!("../../../packaging/longhaul-agent.service");
/// The program in the packaged unit.
const PACKAGED_PROGRAM: &str = "/usr/bin/longhaul";

/// Returns the directory of the user's units; `None` if the environment defines no home.
pub fn directory() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")))?;
    Some(config.join("systemd/user"))
}

/// Writes the unit for this program; returns its path.
///
/// # Errors
/// The kernel's error; `InvalidInput` if the program's path cannot be written in a unit.
pub fn install(directory: &Path, program: &Path) -> io::Result<PathBuf> {
    let plain = |text: &&str| !text.contains(['"', '\\', '%', '$']) && !text.contains(char::is_control);
    let program = program.to_str().filter(plain).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "a unit cannot name this program: move it to another path",
        )
    })?;
    std::fs::create_dir_all(directory)?;
    let path = directory.join(NAME);
    std::fs::write(&path, PACKAGED.replace(PACKAGED_PROGRAM, &format!("\"{program}\"")))?;
    Ok(path)
}

/// Removes the unit; returns whether it existed.
///
/// # Errors
/// The kernel's error.
pub fn uninstall(directory: &Path) -> io::Result<bool> {
    match std::fs::remove_file(directory.join(NAME)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_names_this_program_and_can_be_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = install(&dir.path().join("user"), Path::new("/opt/my tools/longhaul")).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("ExecStart=\"/opt/my tools/longhaul\" agent --foreground"), "{text}");
        assert!(install(dir.path(), Path::new("/opt/%h/longhaul")).is_err());
        assert!(uninstall(path.parent().unwrap()).unwrap() && !uninstall(path.parent().unwrap()).unwrap());
    }
}
