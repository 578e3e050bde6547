//! The browsers of this user, and their directories for native messaging manifests.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// A family of browsers, which determines the format of a native manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Firefox,
    Chromium,
}

/// A browser of this user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Browser {
    pub(super) name: String,
    pub(super) family: Family,
    /// The directory of its native manifests.
    pub(super) manifests: PathBuf,
}

impl Browser {
    /// Returns the path of Longhaul's manifest.
    pub(super) fn manifest(&self) -> PathBuf {
        self.manifests.join("longhaul.json")
    }
}

/// Name, family, directory below the home directory (Firefox family) or the configuration directory
/// (Chromium family), programs.
const KNOWN: [(&str, Family, &str, &[&str]); 8] = [
    ("Firefox", Family::Firefox, ".mozilla", &["firefox", "firefox-esr"]),
    ("LibreWolf", Family::Firefox, ".librewolf", &["librewolf"]),
    ("Chromium", Family::Chromium, "chromium", &["chromium", "chromium-browser"]),
    ("Google Chrome", Family::Chromium, "google-chrome", &["google-chrome", "google-chrome-stable"]),
    ("Brave", Family::Chromium, "BraveSoftware/Brave-Browser", &["brave-browser"]),
    ("Microsoft Edge", Family::Chromium, "microsoft-edge", &["microsoft-edge"]),
    ("Vivaldi", Family::Chromium, "vivaldi", &["vivaldi"]),
    ("Opera", Family::Chromium, "opera", &["opera"]),
];

/// Returns the user's home directory.
pub(super) fn home() -> anyhow::Result<PathBuf> {
    std::env::home_dir()
        .filter(|home| home.is_absolute())
        .context("HOME is not set: cannot find the settings of the browsers")
}

/// Returns the directory of an XDG variable, or its default below `home`.
pub(super) fn xdg(variable: &str, home: &Path, default: &str) -> PathBuf {
    let set = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    set.unwrap_or_else(|| home.join(default))
}

/// The error where no browser is found.
pub(super) const NONE_FOUND: &str =
    "no browser found: start Firefox or Chromium once, or give --user-data-dir";

/// Finds the browsers that have a profile or a program; `user_data` are further directories of
/// Chromium's `--user-data-dir`.
pub(super) fn find(user_data: &[PathBuf]) -> anyhow::Result<Vec<Browser>> {
    let home = home()?;
    let config = xdg("XDG_CONFIG_HOME", &home, ".config");
    let known = KNOWN.iter().filter_map(|&(name, family, folder, programs)| {
        let (profiles, subfolder) = match family {
            Family::Firefox => (home.join(folder), "native-messaging-hosts"),
            Family::Chromium => (config.join(folder), "NativeMessagingHosts"),
        };
        (profiles.is_dir() || programs.iter().any(|program| is_in_path(program))).then(|| Browser {
            name: name.to_owned(),
            family,
            manifests: profiles.join(subfolder),
        })
    });
    let given = user_data.iter().map(|directory| {
        let absolute = std::path::absolute(directory).context("--user-data-dir is empty")?;
        Ok(Browser {
            name: format!("Chromium with {}", directory.display()),
            family: Family::Chromium,
            manifests: absolute.join("NativeMessagingHosts"),
        })
    });
    known.map(Ok).chain(given).collect()
}

fn is_in_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}
