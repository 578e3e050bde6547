//! `longhaul browser check`: queries the native host like a browser.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use longhaul_core::failure::FailureKind;
use longhaul_core::proto::native_messaging::encode;
use serde_json::Value;

use super::browsers::{self, Browser, Family};
use super::host::read_message;
use super::manifest::{self, CHROMIUM_ID, FIREFOX_ID};
use crate::{exit, say, stdout};

/// Maximum time for the host's reply, which includes the start of the agent.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

/// Checks each browser; exits with 1 if one is not connected.
pub(super) fn run(browsers: &[Browser]) -> anyhow::Result<ExitCode> {
    if browsers.is_empty() {
        return Ok(exit::said(browsers::NONE_FOUND, FailureKind::NotFound));
    }
    let mut sound = true;
    for browser in browsers {
        match check(browser) {
            Ok(version) => {
                stdout::line(format_args!("{}: connected, longhaul {version} answers", browser.name))
            }
            Err(error) => {
                sound = false;
                stdout::line(format_args!("{}: {}", browser.name, say::chain(&error)));
            }
        }
    }
    if sound {
        return Ok(ExitCode::SUCCESS);
    }
    stdout::line("Run: longhaul browser install");
    Ok(exit::FOUND.into())
}

fn check(browser: &Browser) -> anyhow::Result<String> {
    let path = browser.manifest();
    let text = fs::read_to_string(&path)
        .with_context(|| format!("not connected: cannot read {}", path.display()))?;
    let found: Value =
        serde_json::from_str(&text).with_context(|| format!("{} is no native manifest", path.display()))?;
    let launcher = found["path"]
        .as_str()
        .map(PathBuf::from)
        .with_context(|| format!("{} names no program", path.display()))?;
    if found != manifest::manifest(browser.family, &launcher) {
        bail!("{} is of another version or extension", path.display());
    }
    let arguments = match browser.family {
        Family::Firefox => vec![path.display().to_string(), FIREFOX_ID.to_owned()],
        Family::Chromium => vec![format!("chrome-extension://{CHROMIUM_ID}/")],
    };
    ask_version(&launcher, &arguments)
}

/// Starts the host, sends a hello, and returns the version in its reply.
fn ask_version(launcher: &Path, arguments: &[String]) -> anyhow::Result<String> {
    let cannot = || format!("cannot run {}", launcher.display());
    let mut host = Command::new(launcher)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(cannot)?;
    let (Some(mut stdin), Some(stdout)) = (host.stdin.take(), host.stdout.take()) else { bail!(cannot()) };
    let hello = encode(br#"{"id":1,"type":"hello"}"#)?;
    stdin.write_all(&hello).with_context(cannot)?;
    let (sender, reply) = mpsc::channel();
    // The thread ends when the host closes its end of the pipe.
    thread::spawn(move || sender.send(read_answer(stdout)));
    let answer = reply.recv_timeout(REPLY_TIMEOUT);
    drop(stdin);
    let _ = host.kill();
    let _ = host.wait();
    let answer: Value = answer.with_context(|| format!("{} does not answer", launcher.display()))??;
    let version = answer["result"]["version"].as_str();
    Ok(version.with_context(|| format!("{} answers {answer}", launcher.display()))?.to_owned())
}

fn read_answer(mut from: impl Read) -> anyhow::Result<Value> {
    let message = read_message(&mut from)?.context("the program ended without an answer")?;
    Ok(serde_json::from_slice(&message)?)
}
