//! The native messaging manifest, which lets a browser start the native host, and the host's
//! launcher.
//!
//! A manifest names a program without arguments; the launcher is a script that adds them. Each
//! family has its own manifest: Firefox rejects Chromium's key.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use longhaul_sys::atomic_file;
use longhaul_sys::if_exists::if_exists;
use serde_json::{Value, json};

use super::browsers::{self, Family};

/// The extension's id in Firefox, from `browser/src/manifest.json`.
pub(super) const FIREFOX_ID: &str = "browser@longhaul.invalid";

/// The extension's id in Chromium: a hash of the key in `browser/src/manifest.json`.
pub(super) const CHROMIUM_ID: &str = "ogkijnhkdbnpemdfgbbbkmpdmajjjgmh";

/// Returns the path of the native host's launcher.
pub(super) fn launcher() -> anyhow::Result<PathBuf> {
    let home = browsers::home()?;
    Ok(browsers::xdg("XDG_DATA_HOME", &home, ".local/share").join("longhaul/browser-host"))
}

/// The file beside the launcher that lists the manifests written, separated by zero bytes.
pub(super) fn list(launcher: &Path) -> PathBuf {
    launcher.with_file_name("browser-manifests")
}

/// Returns the manifests in a list; none if it does not exist.
pub(super) fn listed(list: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let paths = if_exists(fs::read(list)).with_context(|| format!("cannot read {}", list.display()))?;
    let paths = paths.unwrap_or_default();
    let paths = paths.split(|&byte| byte == 0).filter(|path| !path.is_empty());
    Ok(paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect())
}

/// Writes a list of manifests.
pub(super) fn write_list(list: &Path, manifests: &BTreeSet<PathBuf>) -> anyhow::Result<()> {
    let paths: Vec<_> = manifests.iter().map(|path| path.as_os_str().as_bytes()).collect();
    write(list, &paths.join(&0), 0o600)
}

/// Writes the launcher of this program.
pub(super) fn write_launcher(path: &Path) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let program =
        program.to_str().with_context(|| format!("{} is no UTF-8: move the program", program.display()))?;
    let quoted = program.replace('\'', r"'\''");
    write(path, format!("#!/bin/sh\nexec '{quoted}' browser host \"$@\"\n").as_bytes(), 0o700)
}

/// Returns the manifest for a family of browsers.
pub(super) fn manifest(family: Family, launcher: &Path) -> Value {
    let mut manifest = json!({
        "name": "longhaul",
        "description": "Longhaul: moves large files as fast as the path allows",
        "path": launcher,
        "type": "stdio",
    });
    match family {
        Family::Firefox => manifest["allowed_extensions"] = json!([FIREFOX_ID]),
        Family::Chromium => {
            manifest["allowed_origins"] = json!([format!("chrome-extension://{CHROMIUM_ID}/")])
        }
    }
    manifest
}

/// Returns whether the browser started the host for Longhaul's extension: Chromium passes the
/// origin as the first argument, Firefox the manifest's path and then the id.
pub(super) fn is_our_extension(arguments: &[String]) -> bool {
    let origin = format!("chrome-extension://{CHROMIUM_ID}/");
    arguments.first() == Some(&origin) || arguments.get(1).is_some_and(|id| id == FIREFOX_ID)
}

/// Writes a file atomically, and creates its directories.
pub(super) fn write(path: &Path, content: &[u8], mode: u32) -> anyhow::Result<()> {
    let folder = path.parent().context("a file without a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    atomic_file::replace(path, content, mode).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn ids_and_keys_are_those_of_the_extension() {
        use base64::Engine as _;
        let text = include_str!("../../../../../browser/src/manifest.json");
        let manifest: Value = serde_json::from_str(text).unwrap();
        assert_eq!(manifest["browser_specific_settings"]["gecko"]["id"], FIREFOX_ID);
        let key =
            base64::engine::general_purpose::STANDARD.decode(manifest["key"].as_str().unwrap()).unwrap();
        let digest = Sha256::digest(&key);
        let id: String = digest[..16]
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .map(|nibble| char::from(b'a' + nibble))
            .collect();
        assert_eq!(id, CHROMIUM_ID);
        let [firefox, chromium] =
            [Family::Firefox, Family::Chromium].map(|f| super::manifest(f, Path::new("/host")));
        assert!(firefox.get("allowed_origins").is_none() && chromium.get("allowed_extensions").is_none());
    }
}
