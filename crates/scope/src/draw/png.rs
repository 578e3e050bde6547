//! A sheet as PNG: the SVG in pixels.

use std::sync::{Arc, LazyLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{Options, Tree};

use super::{DrawError, text};

/// Pixels a unit of the SVG: sharp in print and on dense screens.
const SCALE: f32 = 2.0;

/// The tallest picture in pixels: of more many viewers show nothing, and this takes 200 MB to draw.
const TALLEST: u32 = 30_000;

/// The fonts of the pictures, read once.
static FONTS: LazyLock<Arc<Database>> = LazyLock::new(|| {
    let mut fonts = Database::new();
    fonts.load_font_data(text::REGULAR.to_vec());
    fonts.load_font_data(text::MEDIUM.to_vec());
    Arc::new(fonts)
});

/// Turns a picture into pixels.
pub(super) fn of_svg(svg: &str) -> Result<Vec<u8>, DrawError> {
    let failed = |reason: String| DrawError::Pixels { reason };
    let options = Options { fontdb: Arc::clone(&FONTS), ..Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(|error| failed(error.to_string()))?;
    let size = tree.size().to_int_size();
    let scaled = size.scale_by(SCALE).filter(|size| size.height() <= TALLEST);
    let mut pixels = scaled
        .and_then(|size| Pixmap::new(size.width(), size.height()))
        .ok_or_else(|| failed(format!("it is {} units tall", size.height())))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| failed(error.to_string()))
}
