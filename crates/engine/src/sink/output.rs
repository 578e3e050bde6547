//! The destination of a file: an open directory, and a name in it.

mod free_name;
mod output_directory;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use output_directory::{prepare_beneath, prepare_directory, prepare_file};

use super::directory::Directory;
use super::file_slice::FileSlice;
use super::output_claims::OutputClaims;
use super::output_error::OutputError;

/// The destination of a file.
#[derive(Debug, Clone)]
pub enum Output {
    /// This path, replacing an existing file once the new one is complete; if it is a directory,
    /// the file is created in it.
    File(PathBuf),
    /// This directory, under the name given by the server or the URL; replaces nothing.
    Directory(PathBuf),
    /// This path below an open directory, without following symbolic links, replacing an existing
    /// file.
    Beneath {
        /// The directory that the path cannot leave.
        root: Arc<Directory>,
        /// The path below `root`.
        path: PathBuf,
    },
    /// An open pipe, terminal or file, written in the order of the bytes; cannot be resumed.
    Stream {
        /// The destination of the bytes.
        file: Arc<File>,
        /// The name in messages.
        name: String,
    },
    /// A range of a file that other transfers write too. The job has no checksum, which would be
    /// that of the whole file.
    Slice(FileSlice),
}

/// What is done where a file of the output's name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfExists {
    /// The file is replaced once the new one is complete.
    Replace,
    /// The job fails.
    Fail,
    /// The new file gets a free name, with a number before the extension.
    Number {
        /// Whether a partial file of the name is certainly one of this job.
        resumes: bool,
    },
}

/// An [`Output`] with its directory open, so that later changes of the path have no effect.
#[derive(Debug)]
pub struct PreparedOutput {
    location: OutputLocation,
    /// `None` if the server or the URL gives the name.
    name: Option<OsString>,
    if_exists: Option<IfExists>,
    /// The outputs of the command.
    claims: Option<Arc<OutputClaims>>,
    /// The name that this output has taken of `claims`.
    taken: OnceLock<OsString>,
}

#[derive(Debug)]
enum OutputLocation {
    Directory(Directory),
    Stream(Arc<File>),
    Slice(FileSlice),
}

impl Output {
    /// Opens the directory, before any network access.
    ///
    /// Follows symbolic links at the end of the path to the target file, which need not exist:
    /// renaming onto a link would replace the link.
    ///
    /// # Errors
    /// [`OutputError::Create`] if a directory is missing, links form a cycle or a name is too long;
    /// [`OutputError::NotAFile`] for a device, a pipe or a socket, because replacing one would
    /// break its users.
    pub fn prepare(&self) -> Result<PreparedOutput, OutputError> {
        match self {
            Self::File(path) => prepare_file(path),
            Self::Directory(path) => prepare_directory(path),
            Self::Beneath { root, path } => prepare_beneath(root, path),
            Self::Stream { file, name } => {
                Ok(PreparedOutput::at(OutputLocation::Stream(Arc::clone(file)), Some(name.into())))
            }
            Self::Slice(slice) => {
                let name = slice.name().to_owned();
                Ok(PreparedOutput::at(OutputLocation::Slice(slice.clone()), Some(name)))
            }
        }
    }
}

impl PreparedOutput {
    /// Creates an output in an open directory; with a `name`, an existing file is replaced, without
    /// one the server's name is used.
    pub fn new(directory: Directory, name: Option<OsString>) -> Self {
        Self::at(OutputLocation::Directory(directory), name)
    }

    fn at(location: OutputLocation, name: Option<OsString>) -> Self {
        Self { location, name, if_exists: None, claims: None, taken: OnceLock::new() }
    }

    /// Sets what is done where a file of the name exists; `None` replaces one whose name the user
    /// chose.
    #[must_use]
    pub fn treating_existing(self, if_exists: Option<IfExists>) -> Self {
        Self { if_exists, ..self }
    }

    /// Makes [`open`](Self::open) take the file's place of `claims`.
    #[must_use]
    pub fn claiming(self, claims: Option<Arc<OutputClaims>>) -> Self {
        Self { claims, ..self }
    }

    /// Returns the file's name, unless the server or the URL gives it.
    pub fn name(&self) -> Option<&OsStr> {
        self.name.as_deref()
    }

    /// Returns whether an existing file is replaced.
    pub fn replaces(&self) -> bool {
        self.if_exists.map_or(self.name.is_some(), |if_exists| if_exists == IfExists::Replace)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use longhaul_core::identity::Identity;
    use longhaul_core::ranges::RangeSet;
    use longhaul_core::units::Bytes;

    use super::*;
    use crate::sink::journal::{Journal, JournalSource};

    fn file(path: PathBuf) -> Result<PreparedOutput, OutputError> {
        Output::File(path).prepare()
    }

    /// Completes an empty file; returns its path.
    fn complete(output: &PreparedOutput, suggested: Option<&str>) -> Result<PathBuf, OutputError> {
        Ok(output.open(suggested)?.finish(output.replaces())?.path)
    }

    #[test]
    fn file_is_created_in_an_opened_directory() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        symlink("sub", at("link")).unwrap();
        symlink("..", at("sub/up")).unwrap();
        for (n, output) in ["sub", "link", "sub/up", "sub/.."].into_iter().enumerate() {
            let output = file(at(output)).unwrap();
            assert_eq!((output.name(), output.replaces()), (None, false));
            complete(&output, Some(&format!("f{n}"))).unwrap();
        }
        assert!(["sub/f0", "sub/f1", "f2", "f3"].iter().all(|name| at(name).is_file()));
        fs::create_dir(at("here")).unwrap();
        let output = file(at("here/f")).unwrap();
        fs::rename(at("here"), at("there")).unwrap();
        complete(&output, Some("never used")).unwrap();
        assert!(at("there/f").is_file());
    }

    #[test]
    fn number_is_before_the_extension_of_a_name_that_has_a_file_or_another_jobs_part() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["set.tar", "set (1).tar", ".hidden", "bare (1).longhaul-part"] {
            fs::write(at(name), "").unwrap();
        }
        let [part, _busy] = ["part.bin", "busy"].map(|name| file(at(name)).unwrap().open(None).unwrap());
        let sources = vec![JournalSource::new("u", "u".into(), Identity::AssumedUnchanged)];
        part.store(&Journal::new(Bytes::ZERO, sources, None), &RangeSet::new()).unwrap();
        drop(part);
        let output = Output::Directory(dir.path().to_owned()).prepare().unwrap();
        let long = "é".repeat(127);
        for (name, ours, expected) in [
            ("set.tar", false, "set (2).tar"),
            (".hidden", false, ".hidden (1)"),
            ("part.bin", false, "part (1).bin"),
            ("part.bin", true, "part.bin"),
            ("busy", true, "busy (1)"),
            ("bare (1)", false, "bare (1)"),
            (&*long, false, &*long),
        ] {
            let part = output.open_numbered(Some(name), false, |_| ours).unwrap();
            assert_eq!(part.target(), at(expected));
            fs::write(at(expected), "made meanwhile").unwrap();
            let finished = part.finish(false).unwrap().path;
            assert!(finished != at(expected) && finished.metadata().unwrap().len() == 0, "{finished:?}");
        }
        assert!(at(&format!("{} (1)", "é".repeat(125))).is_file());
    }

    #[test]
    fn link_of_another_user_in_a_shared_directory_is_not_followed() {
        use std::os::unix::fs::{PermissionsExt, lchown};
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: only root can give a link to another user");
        }
        for (mode, directory, link, followed) in [
            (0o1777, 0, 1, false),
            (0o1777, 0, 0, true),
            (0o1777, 1, 1, true),
            (0o1777, 2, 1, false),
            (0o1775, 0, 1, true),
            (0o777, 0, 1, true),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| dir.path().join(name);
            fs::create_dir(at("shared")).unwrap();
            fs::write(at("victim"), "precious").unwrap();
            symlink(at("victim"), at("shared/link")).unwrap();
            lchown(at("shared/link"), Some(link), None).unwrap();
            lchown(at("shared"), Some(directory), None).unwrap();
            fs::set_permissions(at("shared"), fs::Permissions::from_mode(mode)).unwrap();
            let found = file(at("shared/link")).map(drop);
            let words = found.as_ref().map_or_else(ToString::to_string, |()| "another user".to_owned());
            assert!(found.is_ok() == followed && words.contains("another user"), "{mode:o}: {found:?}");
        }
    }
}
