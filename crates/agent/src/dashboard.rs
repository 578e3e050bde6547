//! The dashboard's files: compiled in, served under a path that contains their hash.
//!
//! The files contain no secrets and need no token; the data comes from the API, which requires one.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// The content security policy: resources from this address only, no inline script or style, no
/// embedding in frames.
const POLICY: &str =
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
/// Cached permanently, because the path contains the hash of the content.
const KEPT: &str = "private, max-age=31536000, immutable";
/// Hexadecimal digits of the hash in the path: enough to distinguish builds.
const HASH_DIGITS: usize = 16;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// A file of the dashboard.
struct Asset {
    path: &'static str,
    kind: &'static str,
    content: &'static [u8],
}

/// Lists files of one media type below `assets/`.
macro_rules! assets {
    ($kind:expr; $($path:literal),+ $(,)?) => {
        [$(Asset { path: $path, kind: $kind, content: include_bytes!(concat!("../assets/", $path)) }),+]
    };
}

static SCRIPTS: &[Asset] = &assets![SCRIPT;
    "js/add.js", "js/api.js", "js/buffers.js", "js/charts.js", "js/dom.js", "js/events.js", "js/format.js", "js/history.js",
    "js/i18n.js", "js/main.js", "js/queue.js", "js/settings.js", "js/store.js", "js/transfer.js", "js/strings/en.js",
    "js/strings/ja.js",
];
static STYLES: &[Asset] = &assets![CSS; "css/base.css", "css/queue.css", "css/transfer.css"];
static ICONS: &[Asset] = &assets![SVG; "favicon.svg"];
/// uPlot as used by reports: see `crates/scope/assets/README.md` for version and licence.
static PLOTS: &[Asset] = &[
    Asset {
        path: "uPlot.iife.min.js",
        kind: SCRIPT,
        content: include_bytes!("../../scope/assets/uplot/uPlot.iife.min.js"),
    },
    Asset {
        path: "uPlot.min.css",
        kind: CSS,
        content: include_bytes!("../../scope/assets/uplot/uPlot.min.css"),
    },
];
const INDEX: &str = include_str!("../assets/index.html");

fn files() -> impl Iterator<Item = &'static Asset> {
    [SCRIPTS, STYLES, ICONS, PLOTS].into_iter().flatten()
}

/// The hash of all files, which is part of their paths.
static HASH: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = blake3::Hasher::new();
    for asset in files() {
        hasher.update(asset.path.as_bytes());
        hasher.update(&(asset.content.len() as u64).to_le_bytes());
        hasher.update(asset.content);
    }
    hasher.finalize().to_hex()[..HASH_DIGITS].to_owned()
});

/// The page, with the paths of this build.
static PAGE: LazyLock<String> = LazyLock::new(|| INDEX.replace("{assets}", &format!("/assets/{}", *HASH)));

/// Returns the routes of the page and its files.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    // Without a session, the page says how to begin one.
    let pages = Router::new().route("/", get(page)).route("/page/{session}/", get(page));
    pages.route("/assets/{hash}/{*path}", get(file))
}

async fn page() -> Response {
    // Not cached, because the next build has other paths.
    answer(HTML, "no-store", PAGE.as_bytes())
}

async fn file(Path((hash, path)): Path<(String, String)>) -> Response {
    match files().find(|asset| hash == *HASH && asset.path == path) {
        Some(asset) => answer(asset.kind, KEPT, asset.content),
        None => {
            (StatusCode::NOT_FOUND, "this build of the dashboard has no such file: load the page again\n")
                .into_response()
        }
    }
}

fn answer(kind: &'static str, kept: &'static str, content: &'static [u8]) -> Response {
    let headers: [(HeaderName, HeaderValue); 7] = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static(kept)),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
        (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    ];
    (headers, content).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn assets_that_the_page_names_are_served() {
        let prefix = format!("\"/assets/{}/", *HASH);
        let named: Vec<&str> =
            PAGE.split(&prefix).skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let is_served = |path: &&str| files().any(|asset| asset.path == *path);
        assert!(named.len() >= 6 && named.iter().all(is_served), "{named:?}");
        assert!(!PAGE.contains("{assets}"));
    }

    #[test]
    fn both_languages_have_the_same_texts() {
        let keys = |path: &str| -> BTreeSet<String> {
            let text = files()
                .find(|asset| asset.path == path)
                .map(|asset| String::from_utf8_lossy(asset.content))
                .unwrap();
            let key = |line: &str| line.trim().split(':').next().map(|key| key.trim_matches('"').to_owned());
            text.lines().filter(|line| line.starts_with("  ")).filter_map(key).collect()
        };
        let english = keys("js/strings/en.js");
        assert_eq!(english, keys("js/strings/ja.js"));
        let named: Vec<_> =
            INDEX.split("data-t=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(named.len() > 10 && named.iter().all(|key| english.contains(*key)), "{named:?}");
    }
}
