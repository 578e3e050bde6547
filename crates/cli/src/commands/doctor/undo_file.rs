//! The values from before `--fix`, the modules that it loaded and the lines that it added: a small
//! file of the user's state.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_sys::atomic_file;
use longhaul_sys::if_exists::if_exists;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::setting;

/// A setting that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedSetting {
    /// The network namespace, as `/proc/self/ns/net` names it: each has settings of its own.
    pub(super) namespace: String,
    pub(super) name: String,
    /// The value before the first change.
    pub(super) old: String,
    /// The value that was written.
    pub(super) new: String,
    /// The value just before that was written, until the value after it has been read: the process
    /// may have been killed in between.
    #[serde(default)]
    pub(super) before: Option<String>,
    /// Whether a failed attempt to write it has put neither the old nor the new value in its place.
    #[serde(skip)]
    pub(super) is_unrestored: bool,
}

impl SavedSetting {
    /// Says whether the setting was last changed by this program. Before the value was read, a
    /// driver may have rounded it.
    pub(super) fn is_own(&self, now: &str) -> bool {
        let is_unread = |before: &str| {
            setting::is_same(&self.name, now, before) || setting::is_taken(&self.name, now, &self.new)
        };
        setting::is_same(&self.name, now, &self.new) || self.before.as_deref().is_some_and(is_unread)
    }
}

/// A kernel module that was loaded, for all network namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedModule {
    pub(super) name: String,
}

/// Lines that were added to a file that is read at each start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SavedLines {
    pub(super) file: String,
    pub(super) lines: Vec<String>,
}

/// All that can be undone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UndoRecord {
    pub(super) settings: Vec<SavedSetting>,
    #[serde(default)]
    pub(super) modules: Vec<SavedModule>,
    #[serde(default)]
    pub(super) lines: Vec<SavedLines>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Document {
    version: u32,
    /// The start of the host in which it was written: a later one has unloaded the modules.
    #[serde(default)]
    boot: String,
    #[serde(flatten)]
    saved: UndoRecord,
}

const VERSION: u32 = 1;

/// Returns the file (XDG Base Directory Specification).
pub(super) fn path() -> Result<PathBuf, Failure> {
    longhaul_engine::user_state::directory().map(|state| state.join("doctor-undo.json")).ok_or_else(|| {
        let message = "old values have no place: set HOME or XDG_STATE_HOME to an absolute path";
        Failure::new(FailureKind::Config, message)
    })
}

/// Returns the network namespace of this process.
pub(super) fn namespace() -> String {
    fs::read_link("/proc/self/ns/net").map_or_else(|_| String::new(), |link| link.display().to_string())
}

/// Returns the identity of this start of the host (random(4)).
fn boot() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    boot.trim().to_owned()
}

/// Locks the file's directory, until the result is dropped, against other processes that read the
/// file to replace it; `None` where there is no directory.
pub(super) fn lock(file: &Path) -> Result<Option<File>, Failure> {
    let failed = |error: io::Error| {
        Failure::new(FailureKind::Disk, format!("cannot lock {}: {error}", file.display()))
    };
    let directory = if_exists(File::open(file.parent().unwrap_or(Path::new("."))));
    let Some(directory) = directory.map_err(failed)? else { return Ok(None) };
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        // Some network file systems have no locks, or none of directories.
        Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK | Errno::BADF) => Ok(Some(directory)),
        Err(Errno::WOULDBLOCK) => {
            let message = "another longhaul doctor is changing settings: try again when it has ended";
            Err(Failure::new(FailureKind::Temporary, message))
        }
        Err(error) => Err(failed(error.into())),
    }
}

/// Reads the file; one that is absent holds nothing. Modules of earlier starts are left out.
pub(super) fn read(file: &Path) -> Result<UndoRecord, Failure> {
    let failed = |error: io::Error| {
        Failure::new(FailureKind::Disk, format!("cannot read {}: {error}", file.display()))
    };
    let Some(text) = if_exists(fs::read(file)).map_err(failed)? else { return Ok(UndoRecord::default()) };
    let damaged = |why: String| {
        let message = format!("{} is damaged ({why}): remove it to give up the old values", file.display());
        Failure::new(FailureKind::Data, message)
    };
    let mut document: Document = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    if document.version != VERSION {
        return Err(damaged(format!("its version is {}", document.version)));
    }
    if document.boot != boot() {
        document.saved.modules.clear();
    }
    Ok(document.saved)
}

/// Replaces the file in one step; where nothing is to be undone it is removed.
pub(super) fn write(file: &Path, saved: &UndoRecord) -> Result<(), Failure> {
    let failed = |error: io::Error| cannot_write(file, &error);
    if *saved == UndoRecord::default() {
        return if_exists(fs::remove_file(file)).map(drop).map_err(failed);
    }
    let document = Document { version: VERSION, boot: boot(), saved: saved.clone() };
    let text = serde_json::to_vec_pretty(&document).map_err(|error| failed(error.into()))?;
    create_directory(file)?;
    atomic_file::replace(file, &text, 0o600).map_err(failed)
}

/// Creates the directory of the file.
pub(super) fn create_directory(file: &Path) -> Result<(), Failure> {
    fs::create_dir_all(file.parent().unwrap_or(Path::new("."))).map_err(|error| cannot_write(file, &error))
}

fn cannot_write(file: &Path, error: &io::Error) -> Failure {
    Failure::new(FailureKind::CannotCreate, format!("cannot write {}: {error}", file.display()))
}

/// Adds a change. Of a setting that was changed before, and is still as it was then, the first old
/// value is kept.
pub(super) fn add(settings: &mut Vec<SavedSetting>, change: SavedSetting) {
    let is_same = |saved: &SavedSetting| saved.name == change.name && saved.namespace == change.namespace;
    let first = settings.iter().position(is_same).map(|index| settings.remove(index));
    let old = first.filter(|first| first.is_own(&change.old)).map(|first| first.old);
    settings.push(SavedSetting { old: old.unwrap_or_else(|| change.old.clone()), ..change });
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn saved(name: &str, old: &str, new: &str) -> SavedSetting {
        let [namespace, name, old, new] = ["net:[1]", name, old, new].map(str::to_owned);
        SavedSetting { namespace, name, old, new, before: None, is_unrestored: false }
    }

    #[test]
    fn settings_are_kept_in_one_step_and_removed_with_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state/doctor-undo.json");
        assert_eq!(read(&file).unwrap(), UndoRecord::default());
        let lines = SavedLines { file: "/etc/x".to_owned(), lines: vec!["y".to_owned()] };
        let mut all = UndoRecord {
            settings: vec![saved("net.ipv4.tcp_sack", "0", "1")],
            modules: vec![SavedModule { name: "tcp_bbr".to_owned() }],
            lines: vec![lines],
        };
        write(&file, &all).unwrap();
        assert_eq!(read(&file).unwrap(), all);
        // A start of the host unloads modules.
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace(&boot(), "an earlier one")).unwrap();
        all.modules.clear();
        assert_eq!(read(&file).unwrap(), all);
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
        write(&file, &UndoRecord::default()).unwrap();
        assert!(!file.exists());
        write(&file, &UndoRecord::default()).unwrap();
        // As it was before modules were loaded, and while they belonged to a namespace.
        for modules in ["", r#","modules":[{"namespace":"net:[1]","name":"tcp_bbr"}]"#] {
            fs::write(&file, format!(r#"{{"version":1,"settings":[]{modules}}}"#)).unwrap();
            assert_eq!(read(&file).unwrap(), UndoRecord::default());
        }
    }

    #[test]
    fn first_old_value_is_kept_unless_it_was_changed_by_another_program_or_the_driver() {
        let mut settings = vec![saved("a", "1", "2")];
        add(&mut settings, saved("a", "2", "3"));
        assert_eq!(settings, [saved("a", "1", "3")]);
        add(&mut settings, saved("a", "7", "8"));
        assert_eq!(settings, [saved("a", "7", "8")]);
        let elsewhere = SavedSetting { namespace: "net:[2]".to_owned(), ..saved("a", "8", "9") };
        add(&mut settings, elsewhere.clone());
        assert_eq!(settings, [saved("a", "7", "8"), elsewhere]);
        let rings = saved("none0 rings", "rx 256 tx 256", "rx 278 tx 278");
        let unread = SavedSetting { before: Some("rx 256 tx 256".to_owned()), ..rings.clone() };
        for (now, is_own, is_own_unread) in [
            ("rx 278 tx 278", true, true),
            ("rx 512 tx 512", false, true),
            ("rx 256 tx 256", false, true),
            ("rx 128 tx 512", false, false),
        ] {
            assert_eq!((rings.is_own(now), unread.is_own(now)), (is_own, is_own_unread), "{now}");
        }
        let mut settings = vec![unread];
        add(&mut settings, saved("none0 rings", "rx 512 tx 512", "rx 1024 tx 1024"));
        assert_eq!(settings, [saved("none0 rings", "rx 256 tx 256", "rx 1024 tx 1024")]);
    }

    #[test]
    fn file_is_locked_and_a_damaged_one_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("state/doctor-undo.json");
        assert!(lock(&file).unwrap().is_none());
        create_directory(&file).unwrap();
        let held = lock(&file).unwrap();
        let error = lock(&file).unwrap_err();
        let is_temporary = error.kind == FailureKind::Temporary;
        assert!(error.to_string().contains("another longhaul doctor") && is_temporary, "{error}");
        drop(held);
        assert!(lock(&file).unwrap().is_some());
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("doctor-undo.json");
        for text in ["", "{", "[]", r#"{"version":1}"#, r#"{"version":2,"settings":[]}"#] {
            fs::write(&file, text).unwrap();
            let error = read(&file).unwrap_err();
            let is_of_data = error.kind == FailureKind::Data;
            assert!(error.to_string().contains("doctor-undo.json is damaged") && is_of_data, "{error}");
        }
        let some = UndoRecord { settings: vec![saved("a", "1", "2")], ..UndoRecord::default() };
        let error = write(&dir.path().join("doctor-undo.json/x"), &some).unwrap_err();
        assert!(error.to_string().contains("cannot write"), "{error}");
    }
}
