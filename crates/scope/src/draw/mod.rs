//! Renders charts as SVG, PNG, or an interactive HTML page.
//!
//! SVG and PNG are rendered from one picture.

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

use std::io;
use std::path::Path;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_sys::atomic_file;

use crate::chart::Sheet;

pub(crate) use prefix::format_value;

/// Renders a sheet as the content of a file.
type Renderer = fn(&Sheet) -> Result<Vec<u8>, Failure>;

/// Returns the renderer that a file's extension selects.
fn renderer(path: &Path) -> Result<Renderer, Failure> {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    match extension.as_deref() {
        Some("html" | "htm") => Ok(|sheet| Ok(html(sheet).into_bytes())),
        Some("svg") => Ok(|sheet| Ok(svg(sheet).into_bytes())),
        Some("png") => Ok(png),
        _ => {
            let path = path.display();
            let message =
                format!("cannot tell from its name how to draw {path}: let it end in .html, .svg or .png");
            Err(Failure::new(FailureKind::Usage, message))
        }
    }
}

/// Checks that a file's extension names an output format.
///
/// # Errors
/// The name does not end in .html, .svg or .png.
pub fn check_name(path: &Path) -> Result<(), Failure> {
    renderer(path).map(|_| ())
}

/// Checks that a picture could be written to `path`, without drawing: extension and directory.
///
/// # Errors
/// As of [`write()`].
pub fn check_place(path: &Path, option: &'static str) -> Result<(), Failure> {
    check_name(path)?;
    let check = match path.is_dir() {
        true => Err(io::ErrorKind::IsADirectory.into()),
        false => atomic_file::check_place(path),
    };
    check.map_err(|error| not_written(path, &error, option))
}

/// Renders a sheet as SVG.
pub fn svg(sheet: &Sheet) -> String {
    svg::write(&picture::draw(sheet))
}

/// Renders a sheet as an HTML page that loads nothing else.
pub fn html(sheet: &Sheet) -> String {
    html::draw(sheet)
}

/// Renders a sheet as PNG, two pixels for each unit of the SVG.
///
/// # Errors
/// Fails if the picture is too large.
pub fn png(sheet: &Sheet) -> Result<Vec<u8>, Failure> {
    png::paint(&picture::draw(sheet))
}

/// Renders a sheet into a file; the extension selects the format: .html, .svg or .png. `option` is
/// named in errors.
///
/// The file is replaced only after the new content is complete.
///
/// # Errors
/// Fails on an unknown extension, an unwritable file, or a picture too large for PNG.
pub fn write(sheet: &Sheet, path: &Path, option: &'static str) -> Result<(), Failure> {
    let drawn = renderer(path)?(sheet)?;
    atomic_file::replace(path, &drawn, 0o666).map_err(|error| not_written(path, &error, option))
}

fn not_written(path: &Path, error: &io::Error, option: &str) -> Failure {
    let message = format!("cannot write {}: {error}; choose another place with {option}", path.display());
    Failure::new(FailureKind::CannotCreate, message)
}
