//! `longhaul browser install|uninstall|check`, and `host`, which browsers start.

mod browsers;
mod check;
mod host;
mod manifest;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use longhaul_core::failure::FailureKind;
use longhaul_sys::if_exists::if_exists;

use crate::{exit, stdout};

/// Connect browsers with Longhaul.
#[derive(Debug, Args)]
pub(crate) struct BrowserArgs {
    #[command(subcommand)]
    command: BrowserCommand,
}

#[derive(Debug, Subcommand)]
enum BrowserCommand {
    /// Let the extension of the browsers found start Longhaul (for this user; no root)
    Install(ProfileArgs),
    /// Undo `install`, in all profile directories that it was given
    Uninstall(ProfileArgs),
    /// Check each browser's manifest, and that the program answers as a browser would ask it
    Check(ProfileArgs),
    /// Speak native messaging on stdin and stdout; browsers start this
    #[command(hide = true)]
    Host {
        /// What the browser says of the extension
        arguments: Vec<String>,
    },
}

/// Additional profile directories.
#[derive(Debug, Args)]
struct ProfileArgs {
    /// Use a further profile directory, as Chromium's --user-data-dir names it; may be repeated
    #[arg(long, value_name = "DIR")]
    user_data_dir: Vec<PathBuf>,
}

/// Runs the subcommand.
pub(crate) fn run(args: &BrowserArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        BrowserCommand::Install(place) => install(place),
        BrowserCommand::Uninstall(place) => uninstall(place),
        BrowserCommand::Check(place) => check::run(&browsers::find(&place.user_data_dir)?),
        BrowserCommand::Host { arguments } => host::run(arguments),
    }
}

fn install(place: &ProfileArgs) -> anyhow::Result<ExitCode> {
    if let Some(missing) = place.user_data_dir.iter().find(|directory| !directory.is_dir()) {
        let message = format_args!(
            "{} is no profile directory: correct --user-data-dir, or start the browser with it once",
            missing.display()
        );
        return Ok(exit::said(message, FailureKind::NotFound));
    }
    let found = browsers::find(&place.user_data_dir)?;
    if found.is_empty() {
        return Ok(exit::said(browsers::NONE_FOUND, FailureKind::NotFound));
    }
    let launcher = manifest::launcher()?;
    manifest::write_launcher(&launcher)?;
    // The list comes first, so that `uninstall` finds all manifests of an `install` that failed.
    let list = manifest::list(&launcher);
    let mut manifests = manifest::listed(&list)?;
    manifests.extend(found.iter().map(browsers::Browser::manifest));
    manifest::write_list(&list, &manifests)?;
    for browser in &found {
        let text = serde_json::to_string_pretty(&manifest::manifest(browser.family, &launcher))?;
        manifest::write(&browser.manifest(), format!("{text}\n").as_bytes(), 0o600)?;
        stdout::line(format_args!("{}: {}", browser.name, browser.manifest().display()));
    }
    stdout::line(HOW_TO_LOAD);
    Ok(ExitCode::SUCCESS)
}

const HOW_TO_LOAD: &str = "
Load the extension (`make browser` builds it into browser/dist):
  Chromium  chrome://extensions, Developer mode on, Load unpacked: browser/dist/chromium
  Firefox   about:debugging#/runtime/this-firefox, Load Temporary Add-on: browser/dist/firefox/manifest.json
Then run: longhaul browser check";

fn uninstall(place: &ProfileArgs) -> anyhow::Result<ExitCode> {
    let launcher = manifest::launcher()?;
    let list = manifest::list(&launcher);
    let mut paths = manifest::listed(&list)?;
    paths.extend(browsers::find(&place.user_data_dir)?.iter().map(browsers::Browser::manifest));
    for path in paths.into_iter().chain([launcher, list]) {
        let removed = if_exists(fs::remove_file(&path));
        if removed.with_context(|| format!("cannot remove {}", path.display()))?.is_some() {
            stdout::line(format_args!("removed {}", path.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}
