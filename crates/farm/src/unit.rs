//! The units of a plan: plain data, one line of JSON each.

use std::ffi::OsStr;
use std::fmt;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_core::checksum::Checksum;
use longhaul_core::failure::{Cause, Failure, FailureKind};
use longhaul_core::units::Bytes;
use longhaul_engine::send::SourceFile;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use serde::{Deserialize, Serialize};

/// The number of a unit in its plan, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnitId(pub u32);

impl fmt::Display for UnitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A part of a plan that one worker executes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Unit {
    /// The files, at least one.
    pub files: Vec<PlannedFile>,
    /// What the unit does with its only file; `None` fetches all files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<FilePart>,
}

/// A part of the work on a huge file, which several workers fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FilePart {
    /// Fetches a range of bytes.
    Range {
        /// The first byte.
        start: u64,
        /// The byte after the last one.
        end: u64,
        /// The unit that joins the ranges.
        joined_by: UnitId,
    },
    /// Verifies the file and gives it its name, when the units of all ranges are done: this many,
    /// before this one.
    Join {
        /// The number of ranges.
        ranges: u32,
    },
}

impl Unit {
    /// Returns the files that are complete with this unit: none for a range.
    pub fn completes(&self) -> &[PlannedFile] {
        if matches!(self.part, Some(FilePart::Range { .. })) { &[] } else { &self.files }
    }

    /// Returns whether the part, if any, is one of the unit's only file.
    pub(crate) fn has_sound_part(&self) -> bool {
        match (self.part, self.files.as_slice()) {
            (None, _) => true,
            (Some(FilePart::Range { start, end, .. }), [file]) => {
                start < end
                    && file.size.is_some_and(|size| end <= size.get())
                    && file.local_source().is_none()
            }
            (Some(FilePart::Join { .. }), [file]) => file.size.is_some() && file.local_source().is_none(),
            _ => false,
        }
    }
}

/// A file of a plan. What is known of its size, time and digest pins its state: another state is an
/// error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedFile {
    /// The URLs; further ones are mirrors of the first. They hold no login. A local file has one,
    /// of the scheme `file`, in which `/./` stands before the names whose symbolic links are not
    /// followed.
    pub urls: Vec<String>,
    /// The path below the target.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// The size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Bytes>,
    /// The modification time, in whole seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<u64>,
    /// The digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
}

/// What the URL of a local file begins with (RFC 8089, appendix B).
const LOCAL: &str = "file://";
/// What stands in the URL of a local file before the names whose symbolic links are not followed.
const BELOW_ROOT: &str = "/./";
/// All bytes but those that a path of a URL holds as they are.
const ESCAPED_IN_URL: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

impl PlannedFile {
    /// Creates a file whose source is the local file at `below` the absolute path `root`.
    pub fn of_local(root: &Path, below: &Path, path: PathBuf, size: Bytes, modified: Option<u64>) -> Self {
        let [root, below] =
            [root, below].map(|path| percent_encode(path.as_os_str().as_bytes(), ESCAPED_IN_URL));
        let url = format!("{LOCAL}{root}{BELOW_ROOT}{below}");
        Self { urls: vec![url], path, size: Some(size), modified, checksum: None }
    }

    /// Returns the path of the source, if it is a local file.
    pub fn local_source(&self) -> Option<PathBuf> {
        self.root_and_below().map(|(root, below)| root.join(below))
    }

    fn root_and_below(&self) -> Option<(PathBuf, PathBuf)> {
        let parts = self.urls.first()?.strip_prefix(LOCAL)?.split_once(BELOW_ROOT)?;
        Some((path_text::parse(parts.0), path_text::parse(parts.1)))
    }

    /// Opens the local source in the planned state. What is then read of it is of this state if
    /// [`SourceFile::check`] says so afterwards.
    ///
    /// # Errors
    /// [`Failure`]: it cannot be read, is none, has another state, or a symbolic link leads to it
    /// that was none when it was planned.
    pub fn open_source(&self) -> Result<SourceFile, Failure> {
        let Some((root, below)) = self.root_and_below() else {
            let message = format!("{} is no local file, and only those are uploaded", self.path.display());
            return Err(Failure::new(FailureKind::Data, message));
        };
        let source = SourceFile::open_beneath(&root, &below)?;
        let changed = |why| Failure::new(FailureKind::Data, why).caused_by(Cause::OtherFile);
        self.check_source(source.path(), source.metadata()).map_err(changed)?;
        Ok(source)
    }

    /// Compares the state of the local source at `source` with the planned one; the error says how
    /// it differs.
    fn check_source(&self, source: &Path, found: &Metadata) -> Result<(), String> {
        let modified = found.modified().ok().and_then(seconds_of);
        let differs = match (self.size, self.modified) {
            (Some(size), _) if size != Bytes::new(found.len()) => {
                format!("it has {} bytes instead of {}", found.len(), size.get())
            }
            (_, planned) if planned != modified => {
                let time = |time: Option<u64>| {
                    time.map_or_else(|| "before 1970".to_owned(), |time| format!("@{time}"))
                };
                format!("its time is {} instead of {}", time(modified), time(planned))
            }
            _ => return Ok(()),
        };
        Err(format!("{} was changed since it was planned: {differs}; make a new plan", source.display()))
    }

    /// Returns the modification time.
    pub fn modified(&self) -> Option<SystemTime> {
        self.modified.and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)))
    }
}

/// Returns a time in whole seconds since 1970; `None` for an earlier one.
pub fn seconds_of(time: SystemTime) -> Option<u64> {
    time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// A path as text that JSON can hold, whatever bytes it has: `%` and what is not printable ASCII is
/// percent-encoded.
pub(crate) mod path_text {
    use serde::{Deserializer, Serializer};

    use super::{AsciiSet, CONTROLS, Deserialize, OsStr, OsStrExt, Path, PathBuf};
    use super::{percent_decode_str, percent_encode};

    const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

    pub(crate) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&percent_encode(path.as_os_str().as_bytes(), ESCAPED))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Ok(parse(&String::deserialize(deserializer)?))
    }

    pub(crate) fn parse(text: &str) -> PathBuf {
        let bytes: Vec<u8> = percent_decode_str(text).collect();
        OsStr::from_bytes(&bytes).into()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn local_source_of_any_name_is_read_as_written_and_compared_with_its_state() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join(OsStr::from_bytes(b"100%25 \xff?#|\n"));
        fs::write(&source, "abc").unwrap();
        let found = fs::metadata(&source).unwrap();
        let modified = found.modified().ok().and_then(seconds_of);
        let below = source.strip_prefix(dir.path()).unwrap();
        let file = PlannedFile::of_local(dir.path(), below, "f".into(), Bytes::new(3), modified);
        assert_eq!(file.local_source(), Some(source.clone()));
        let of_root = PlannedFile::of_local(Path::new("/"), Path::new("a/b"), "f".into(), Bytes::ZERO, None);
        assert_eq!(of_root.local_source(), Some("/a/b".into()));
        let fetched = PlannedFile { urls: vec!["http://h/f".into()], ..file.clone() };
        assert_eq!(fetched.local_source(), None);
        assert_eq!(file.check_source(&source, &found), Ok(()));
        for (file, word) in [
            (PlannedFile { size: Some(Bytes::new(4)), ..file.clone() }, "3 bytes instead of 4"),
            (PlannedFile { modified: Some(7), ..file.clone() }, "instead of @7"),
            (PlannedFile { modified: None, ..file.clone() }, "before 1970"),
        ] {
            let error = file.check_source(&source, &found).unwrap_err();
            assert!(error.contains(word) && error.contains("make a new plan"), "{error}");
            assert_eq!(file.open_source().unwrap_err().cause, Cause::OtherFile);
        }
        // A link to a file of equal size and time.
        file.open_source().unwrap().check().unwrap();
        fs::rename(&source, dir.path().join("moved")).unwrap();
        std::os::unix::fs::symlink("moved", &source).unwrap();
        assert_eq!(file.open_source().unwrap_err().kind, FailureKind::Data);
    }

    #[test]
    fn file_of_any_name_is_read_as_written() {
        let file = PlannedFile {
            urls: vec!["http://h/a%20b".into()],
            path: OsStr::from_bytes(b"d/100%25 \xff\n\"").into(),
            size: Some(Bytes::new(5)),
            modified: Some(1_700_000_000),
            checksum: "md5:900150983cd24fb0d6963f7d28e17f72".parse().ok(),
        };
        let text = serde_json::to_string(&file).unwrap();
        assert!(text.contains(r#""path":"d/100%2525 %FF%0A\"""#), "{text}");
        assert_eq!(serde_json::from_str::<PlannedFile>(&text).unwrap(), file);
        let bare = r#"{"urls":["http://h/f"],"path":"f"}"#;
        let unknown = serde_json::from_str::<PlannedFile>(bare).unwrap();
        assert_eq!((unknown.size, unknown.modified()), (None, None));
    }
}
