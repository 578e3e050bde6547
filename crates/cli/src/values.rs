//! Values of options that several commands have.

use longhaul_engine::recv::ring::AppBuffer;

/// Reads `--app-buffer`.
pub(crate) fn app_buffer(text: &str) -> Result<AppBuffer, String> {
    match text {
        "auto" => Ok(AppBuffer::Auto),
        size => size.parse().map(AppBuffer::Fixed).map_err(|error| format!("{error}")),
    }
}
