//! Lines of this program's own files that are read at each start of the host.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use longhaul_core::host_check::{Fix, Lasting, START_FILES, SYSCTL_FILE};
use longhaul_sys::atomic_file;
use longhaul_sys::if_exists::if_exists;
use rustix::fs::{Access, access};

/// The directories of kernel settings that are read at the start, all files by their names
/// (sysctl.d(5), sysctl(8)).
const SYSCTL_DIRECTORIES: [&str; 5] =
    ["/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d", "/lib/sysctl.d"];
/// The file that sysctl(8) reads after those.
const SYSCTL_CONF: &str = "/etc/sysctl.conf";

/// Says whether a file can be written, without writing it.
pub(super) fn check_writable(file: &str) -> io::Result<()> {
    let directory = own(file)?.ancestors().skip(1).find(|directory| directory.exists());
    Ok(access(directory.unwrap_or(Path::new("/")), Access::WRITE_OK)?)
}

/// Returns those lines that a file does not have, or has before another one that sets the same.
pub(super) fn missing(file: &str, lines: &[&str]) -> io::Result<Vec<String>> {
    let text = read(own(file)?)?;
    Ok(lines.iter().filter(|line| !is_in_force(file, &text, line)).map(|line| (*line).to_owned()).collect())
}

/// Says whether the last line of a text that sets what `line` sets is that line.
fn is_in_force(file: &str, text: &str, line: &str) -> bool {
    let subject = |line: &str| match assignment(line).filter(|_| file == SYSCTL_FILE) {
        Some((name, _)) => name,
        None => rings_of(line).unwrap_or(line).to_owned(),
    };
    text.lines().rfind(|known| subject(known) == subject(line)) == Some(line)
}

/// Says whether the files have all lines of a fix, and none of them is without effect.
pub(super) fn contain(fix: &Fix) -> bool {
    let is_held = |Lasting { file, lines }: &Lasting| {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        missing(file, &lines).is_ok_and(|missing| missing.is_empty())
            && lines.iter().all(|line| why_ineffective(file, line).is_none())
    };
    fix.lasting.is_some() && fix.modules.iter().chain(&fix.lasting).all(is_held)
}

/// Returns why a line would do nothing: a later file sets the same, or the program of a udev rule
/// is missing.
pub(super) fn why_ineffective(file: &str, line: &str) -> Option<String> {
    if file == SYSCTL_FILE {
        let (name, value) = assignment(line)?;
        let other = set_later(&name, &value)?;
        return Some(format!("{} sets {name} to another value later: change it there", other.display()));
    }
    let program = line.split_once("RUN+=\"")?.1.split([' ', '"']).next()?;
    (!Path::new(program).exists()).then(|| format!("{program} is not installed: the rule would do nothing"))
}

/// Returns the file that is read after that of this program and gives a kernel setting another
/// value.
fn set_later(name: &str, value: &str) -> Option<PathBuf> {
    let files = SYSCTL_DIRECTORIES.iter().filter_map(|directory| fs::read_dir(directory).ok());
    let files = files.flatten().flatten().map(|entry| entry.path());
    let is_later = |file: &PathBuf| {
        file.extension().is_some_and(|kind| kind == "conf")
            && file.file_name() > Path::new(SYSCTL_FILE).file_name()
    };
    files.filter(is_later).chain([PathBuf::from(SYSCTL_CONF)]).find(|file| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let last = text.lines().filter_map(assignment).rfind(|(other, _)| other == name);
        last.is_some_and(|(_, other)| other != value)
    })
}

/// Reads "net.ipv4.tcp_sack = 1" (sysctl.conf(5)): slashes may separate the words of a name, and a
/// "-" before it permits errors.
fn assignment(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim().trim_start_matches('-').replace('/', ".");
    Some((name, value.split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// Returns the part of a udev rule for the sizes of a device's rings that all such rules of the
/// device have.
fn rings_of(line: &str) -> Option<&str> {
    let (command, _) = line.split_once(" rx ")?;
    command.contains("/ethtool -G ").then_some(command)
}

/// Adds lines to a file.
pub(super) fn add(file: &str, lines: &[String]) -> io::Result<()> {
    let path = own(file)?;
    let text = with_lines(&read(path)?, lines);
    create_directories(path.parent().unwrap_or(Path::new("/")))?;
    replace(path, &text)
}

/// Appends lines to a text: of two that set one kernel setting the later one counts. Rules for the
/// rings of one device would both be run, and change its rings twice: a later one replaces those
/// before.
fn with_lines(text: &str, lines: &[String]) -> String {
    let is_replaced =
        |known: &str| rings_of(known).is_some() && lines.iter().any(|line| rings_of(line) == rings_of(known));
    let kept = text.lines().filter(|known| !is_replaced(known));
    kept.chain(lines.iter().map(String::as_str)).map(|line| format!("{line}\n")).collect()
}

/// Creates a directory, and those above it, which other users can read: services read the files,
/// too.
fn create_directories(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    create_directories(directory.parent().unwrap_or(Path::new("/")))?;
    fs::create_dir(directory)?;
    fs::set_permissions(directory, Permissions::from_mode(0o755))
}

/// Replaces a file, which keeps its mode; other users can read a new one.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mode = path.metadata().map_or(0o644, |file| file.permissions().mode() & 0o777);
    atomic_file::replace_despite_umask(path, text.as_bytes(), mode)
}

/// Removes lines from a file, and a file that has no others. Lines that are gone already are no
/// error.
pub(super) fn remove(file: &str, lines: &[String]) -> io::Result<()> {
    let path = own(file)?;
    let text = read(path)?;
    let is_kept = |line: &&str| !lines.iter().any(|removed| removed == line);
    let kept: String = text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect();
    if !kept.is_empty() {
        return if kept == text { Ok(()) } else { replace(path, &kept) };
    }
    if_exists(fs::remove_file(path)).map(drop)
}

fn read(path: &Path) -> io::Result<String> {
    Ok(if_exists(fs::read_to_string(path))?.unwrap_or_default())
}

/// Names come from a file of the user's, too: only files that hold nothing of others are taken.
fn own(file: &str) -> io::Result<&Path> {
    if START_FILES.contains(&file) {
        Ok(Path::new(file))
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no file of this program"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_for_a_setting_counts_and_a_later_rule_for_rings_replaces_the_earlier_one() {
        let rule = |command: &str| format!("NAME==\"a\", RUN+=\"/usr/sbin/ethtool {command}\"");
        let [old, other, offload, new] =
            ["-G a rx 512 tx 256", "-G b rx 512 tx 256", "-K a rx on", "-G a rx 4096 tx 256"].map(rule);
        let text = with_lines("", &[old.clone(), other.clone(), offload.clone()]);
        assert!([&old, &other].iter().all(|rule| is_in_force("rules", &text, rule)));
        assert!(!is_in_force("rules", &text, &new));
        let text = with_lines(&text, std::slice::from_ref(&new));
        assert_eq!(text, format!("{other}\n{offload}\n{new}\n"));
        assert!(is_in_force("rules", &text, &new) && !is_in_force("rules", &text, &old));
        assert_eq!(with_lines("net.a = 1", &["net.a = 2".to_owned()]), "net.a = 1\nnet.a = 2\n");
        let is_in_force = |text: &str| is_in_force(SYSCTL_FILE, text, "net.a = 2");
        assert!(is_in_force("net.a = 1\nnet.b = 1\nnet.a = 2\n# net.a = 3"));
        assert!(!is_in_force("net.a = 2\nnet.b = 1\nnet/a=1") && !is_in_force(""));
        // Rules add up.
        let rules = "NAME==\"a\", x\nNAME==\"a\", y";
        assert!(super::is_in_force("/etc/udev/rules.d/90-longhaul.rules", rules, "NAME==\"a\", x"));
    }

    #[test]
    fn files_of_others_are_refused() {
        let lines = ["x".to_owned()];
        for file in ["/etc/passwd", "/etc/sysctl.d/../passwd", "", "/etc/sysctl.d/99-other.conf"] {
            for result in [check_writable(file), add(file, &lines), remove(file, &lines)] {
                assert_eq!(result.unwrap_err().to_string(), "it is no file of this program", "{file}");
            }
            assert!(missing(file, &["x"]).is_err(), "{file}");
        }
    }
}
