//! The user's systemd unit, which starts the agent with the session.

use std::io;
use std::path::{Path, PathBuf};

use longhaul_sys::if_exists::if_exists;

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

/// The agent's command in the packaged unit.
const PACKAGED_COMMAND: &str = "agent --foreground";

/// Writes the unit for this program, which gives the agent further `options`; returns its path.
///
/// # Errors
/// The kernel's error; `InvalidInput` if the program's path or an option cannot be written in a
/// unit.
pub fn install(directory: &Path, program: &Path, options: &[String]) -> io::Result<PathBuf> {
    let plain = |text: &&str| !text.contains(['"', '\\', '%', '$']) && !text.contains(char::is_control);
    let refused = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why);
    let program = program
        .to_str()
        .filter(plain)
        .ok_or_else(|| refused("a unit cannot name this program: move it to another path"))?;
    if options.iter().any(|option| option.contains(char::is_control)) {
        return Err(refused("an option contains a control character"));
    }
    let options: String = options.iter().map(|option| format!(" {}", quoted(option))).collect();
    std::fs::create_dir_all(directory)?;
    let path = directory.join(NAME);
    let unit = PACKAGED.replace(PACKAGED_PROGRAM, &format!("\"{program}\""));
    std::fs::write(&path, unit.replace(PACKAGED_COMMAND, &format!("{PACKAGED_COMMAND}{options}")))?;
    Ok(path)
}

/// Returns an argument as a unit's command has it: systemd expands specifiers such as %h and
/// variables such as $HOME, also within quotes (systemd.service(5), "Command lines").
fn quoted(argument: &str) -> String {
    let is_plain = |next: char| next.is_ascii_alphanumeric() || "-_.,:/@%=?&[]+~".contains(next);
    let text = argument.replace('%', "%%").replace('$', "$$");
    match argument.chars().all(is_plain) && !argument.is_empty() {
        true => text,
        false => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

/// Removes the unit; returns whether it existed.
///
/// # Errors
/// The kernel's error.
pub fn uninstall(directory: &Path) -> io::Result<bool> {
    Ok(if_exists(std::fs::remove_file(directory.join(NAME)))?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_names_this_program_and_its_options() {
        let dir = tempfile::tempdir().unwrap();
        let options = ["--farm", "postgres://u@%2Frun/db", "--x", "a $HOME \"b\" \\c"].map(str::to_owned);
        let path = install(&dir.path().join("user"), Path::new("/opt/my tools/longhaul"), &options).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.contains(
                "ExecStart=\"/opt/my tools/longhaul\" agent --foreground --farm postgres://u@%%2Frun/db --x \"a $$HOME \\\"b\\\" \\\\c\"\n"
            ),
            "{text}"
        );
        assert!(install(dir.path(), Path::new("/opt/%h/longhaul"), &[]).is_err());
        let line = ["a\nExecStart=/bin/sh".to_owned()];
        assert!(install(dir.path(), Path::new("/opt/longhaul"), &line).is_err());
    }
}
