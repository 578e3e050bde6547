//! Opens the directory in which an output is created.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::PreparedOutput;
use crate::sink::directory::Directory;
use crate::sink::output_error::OutputError;
use crate::sink::part_names::{PART, beside};

/// The most links that the kernel follows (path_resolution(7)).
const MAX_LINKS: usize = 40;

pub(super) fn prepare_directory(path: &Path) -> Result<PreparedOutput, OutputError> {
    let directory = Directory::open(path);
    let directory = directory.map_err(|source| OutputError::Create { path: path.to_owned(), source })?;
    Ok(PreparedOutput::new(directory, None))
}

/// Opens the directory of a path below `root`; refuses to replace anything but a file.
pub(super) fn prepare_beneath(root: &Directory, path: &Path) -> Result<PreparedOutput, OutputError> {
    let shown = root.path_of(path.as_os_str());
    let failed = |source| OutputError::Create { path: shown.clone(), source };
    let (above, name) = split(path).ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    let directory = root.beneath(above).map_err(failed)?;
    match directory.look(name, false).map(|there| FileType::from_raw_mode(there.st_mode)) {
        Ok(FileType::RegularFile) => {}
        Ok(FileType::Directory) => return Err(OutputError::IsDirectory(shown)),
        Ok(_) => return Err(OutputError::NotAFile(shown)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(failed(source)),
    }
    Ok(PreparedOutput::new(directory, Some(name.to_owned())))
}

pub(super) fn prepare_file(path: &Path) -> Result<PreparedOutput, OutputError> {
    let Some((above, name)) = split(path) else { return prepare_directory(path) };
    let (mut directory, mut name) = (open_above(Directory::open(above), above, name)?, name.to_owned());
    for _ in 0..=MAX_LINKS {
        // A link in /proc, as /dev/stdout leads to, refers to an open file of a process, not to a
        // name.
        if directory.is_of_processes() {
            return Err(OutputError::NotAFile(path.to_owned()));
        }
        let location = directory.path_of(&name);
        let failed = |source| OutputError::Create { path: location.clone(), source };
        let found = match directory.look(&name, false) {
            Ok(found) => FileType::from_raw_mode(found.st_mode),
            Err(error) if error.kind() == io::ErrorKind::NotFound => FileType::RegularFile,
            Err(source) => return Err(failed(source)),
        };
        match found {
            FileType::RegularFile => return Ok(PreparedOutput::new(directory, Some(name))),
            FileType::Directory => {
                let directory = directory.subdirectory(Path::new(&name)).map_err(failed)?;
                return Ok(PreparedOutput::new(directory, None));
            }
            FileType::Symlink => {
                directory.check_link(&name).map_err(failed)?;
                let to = directory.read_link(&name).map_err(failed)?;
                let Some((above, end)) = split(&to) else {
                    let directory = directory.subdirectory(&to).map_err(failed)?;
                    return Ok(PreparedOutput::new(directory, None));
                };
                directory = open_above(directory.subdirectory(above), above, end)?;
                name = end.to_owned();
            }
            _ => return Err(OutputError::NotAFile(location)),
        }
    }
    Err(OutputError::Create { path: path.to_owned(), source: Errno::LOOP.into() })
}

/// Splits a path into its last name and the part above; `None` if it ends in `..` or is a root.
fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    let name = path.file_name()?;
    Some((path.parent().unwrap_or(Path::new("")), name))
}

fn open_above(opened: io::Result<Directory>, above: &Path, name: &OsStr) -> Result<Directory, OutputError> {
    opened.map_err(|source| OutputError::Create { path: above.join(beside(name, PART)), source })
}
