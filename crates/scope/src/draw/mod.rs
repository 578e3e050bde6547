//! Charts as pictures: SVG and PNG for paper, and a page of HTML to look into them.
//!
//! One drawing serves both pictures: SVG is written from it, PNG is painted.

mod axis;
mod html;
mod palette;
mod picture;
mod png;
mod prefix;
mod prepared;
mod svg;
#[cfg(test)]
mod tests;
mod text;
mod thin;

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::chart::Sheet;

pub(crate) use prefix::told;

/// Drawing failed.
#[derive(Debug, thiserror::Error)]
pub enum DrawError {
    /// The file's name does not say what to draw.
    #[error("cannot tell from its name how to draw {}: let it end in .html, .svg or .png", path.display())]
    Extension {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {source}; choose another place with {option}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
        /// The option that names another.
        option: &'static str,
    },
    /// The picture cannot be turned into pixels.
    #[error("cannot draw the picture in pixels: {reason}; .svg has no such limit")]
    Pixels {
        /// Why.
        reason: String,
    },
}

/// The kinds of [`DrawError`] that a caller tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrawErrorKind {
    /// It was asked for in a way that cannot work.
    Usage,
    /// The file cannot be created.
    CannotCreate,
}

impl DrawError {
    /// Returns its kind.
    pub fn kind(&self) -> DrawErrorKind {
        match self {
            Self::Extension { .. } => DrawErrorKind::Usage,
            Self::Write { .. } | Self::Pixels { .. } => DrawErrorKind::CannotCreate,
        }
    }
}

/// What a sheet can be drawn as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Html,
    Svg,
    Png,
}

impl Format {
    fn of(path: &Path) -> Result<Self, DrawError> {
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
        match extension.as_deref() {
            Some("html" | "htm") => Ok(Self::Html),
            Some("svg") => Ok(Self::Svg),
            Some("png") => Ok(Self::Png),
            _ => Err(DrawError::Extension { path: path.to_owned() }),
        }
    }
}

/// Says whether a file's name tells how to draw into it, without drawing.
///
/// # Errors
/// [`DrawError::Extension`] where it does not end in .html, .svg or .png.
pub fn check_name(path: &Path) -> Result<(), DrawError> {
    Format::of(path).map(|_| ())
}

/// Says whether a picture could be drawn into a file, without drawing: whether its name tells how, and its place can be written.
///
/// # Errors
/// As of [`write()`].
pub fn check_place(path: &Path, option: &'static str) -> Result<(), DrawError> {
    check_name(path)?;
    let check = match path.is_dir() {
        true => Err(io::ErrorKind::IsADirectory.into()),
        false => file_beside(path).map(drop),
    };
    check.map_err(|source| DrawError::Write { path: path.to_owned(), source, option })
}

/// Draws a sheet as a picture that scales.
pub fn svg(sheet: &Sheet) -> String {
    svg::write(&picture::draw(sheet))
}

/// Draws a sheet as a page to look into, in a file that loads nothing else.
pub fn html(sheet: &Sheet) -> String {
    html::draw(sheet)
}

/// Draws a sheet as pixels, two to each unit of the SVG.
///
/// # Errors
/// Fails where it is too large.
pub fn png(sheet: &Sheet) -> Result<Vec<u8>, DrawError> {
    png::paint(&picture::draw(sheet))
}

/// Draws a sheet into a file, as the end of its name asks for: .html, .svg or .png; `option` names another place.
///
/// What stood there before stays until all of the new is written.
///
/// # Errors
/// Fails where the name ends otherwise, where the file cannot be written, or where it is too large for pixels.
pub fn write(sheet: &Sheet, path: &Path, option: &'static str) -> Result<(), DrawError> {
    let drawn = match Format::of(path)? {
        Format::Html => html(sheet).into_bytes(),
        Format::Svg => svg(sheet).into_bytes(),
        Format::Png => png(sheet)?,
    };
    replace(path, &drawn).map_err(|source| DrawError::Write { path: path.to_owned(), source, option })
}

/// Puts content in a file's place at once, so that nobody sees half of it.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = file_beside(path)?;
    file.write_all(content)?;
    file.persist(path).map_err(|failed| failed.error)?;
    Ok(())
}

/// Makes a file that can take the place of `path`.
fn file_beside(path: &Path) -> io::Result<NamedTempFile> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let beside = directory.unwrap_or(Path::new("."));
    fs::metadata(beside)?;
    // Readable as any new file is; what tempfile makes is by itself for its owner only.
    let readable = Permissions::from_mode(0o666);
    let made = tempfile::Builder::new().prefix(".longhaul-").permissions(readable).tempfile_in(beside);
    // The error's text has the name of the file that was tried, which means nothing to a user.
    made.map_err(|error| error.kind().into())
}
