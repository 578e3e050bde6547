//! `longhaul get -r URL/`: fetches a directory recursively.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use longhaul_core::event::{Done, JobTag};
use longhaul_core::files_at_once::JobAdmission;
use longhaul_core::proto::listing::check_name;
use longhaul_engine::engine::Engine;
use longhaul_engine::job::TransferError;
use longhaul_engine::source::http::SafeUrl;
use longhaul_scope::record::schema::Side;
use percent_encoding::percent_decode_str;
use url::Url;

use super::files::refuse_clear;
use super::{GetArgs, Operand, options, to_stdout};
use crate::many_files::{Batch, not_begun};
use crate::session::CommandSession;
use crate::{exit, interrupt};

/// Fetches a directory; returns the exit code of the first failure, or of an interruption.
pub(super) fn run(args: &GetArgs) -> anyhow::Result<ExitCode> {
    let cancel = args.transfer.client.connect.cancel();
    let setup = || {
        let url = url(args)?;
        to_stdout::output(args, 1)?;
        let target = args.files.output.clone().map_or_else(|| named_after(url), Ok)?;
        let options = options(args, Some(url), &cancel)?;
        interrupt::listen(&cancel)?;
        Ok::<_, anyhow::Error>((url, target, options))
    };
    let (url, target, options) = setup().map_err(|error| exit::not_set_up(&error, &cancel))?;
    let engine = Engine::new(args.buffers.app_buffer);
    let is_new = !target.exists();
    let tree = engine.remote_tree(url, &target, &options.transfer);
    let tree = tree.map_err(|error| not_begun(error, &cancel))?;
    let (what, lines) = (SafeUrl::of(url).to_string(), args.transfer.shows_line());
    let session = CommandSession::begin(&args.transfer, Side::Get, &what, None, lines, &cancel)?;
    let admission = JobAdmission::new(args.parallel);
    let batch = Batch { engine: &engine, session, cancel: &cancel, admission };
    let fetched = batch.run_walk(
        tree.walk(&cancel),
        |file| file.size,
        |session, job, file| {
            let tag = JobTag::new(job, &SafeUrl::of(&file.url).to_string());
            if let Some((path, size)) =
                options.transfer.resume.then(|| tree.unchanged(&file, &cancel)).flatten()
            {
                return session.run(&tag, |_| Ok(Done::unchanged(path, size)), TransferError::kind);
            }
            let job = tree.job(&file, options.clone());
            session.run(&tag, |observer| engine.run(&job, observer, &cancel), TransferError::kind)
        },
    );
    if is_new && fetched.is_err() {
        // Removes the directory if it is empty because the server does not have it.
        let _ = std::fs::remove_dir(&target);
    }
    Ok(exit::of_end(fetched))
}

/// Returns the URL of the only operand.
fn url(args: &GetArgs) -> anyhow::Result<&Url> {
    if args.integrity.checksum.is_some() || !args.files.mirror.is_empty() {
        bail!("--checksum and --mirror are for one file, not for a directory");
    }
    match &args.sources[..] {
        [Operand::Url(url)] => refuse_clear(args, std::iter::once(url)).map(|()| url),
        _ => bail!("-r takes the URL of one directory; fetch others with commands of their own"),
    }
}

/// Returns the local directory: named after the directory on the server, or after the server.
pub(crate) fn named_after(url: &Url) -> anyhow::Result<PathBuf> {
    let last = url.path_segments().and_then(|mut segments| segments.rfind(|segment| !segment.is_empty()));
    let name = match last {
        Some(segment) => percent_decode_str(segment).decode_utf8_lossy().into_owned(),
        None => url.host_str().unwrap_or_default().to_owned(),
    };
    check_name(name.as_bytes())
        .with_context(|| format!("cannot name a directory after {}: use -o", SafeUrl::of(url)))?;
    Ok(PathBuf::from(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_named_after_the_last_name_or_the_host() {
        let named = |url: &str| named_after(&url.parse().unwrap()).ok();
        assert_eq!(named("http://h/a/b%20c/"), Some("b c".into()));
        assert_eq!(named("http://h:81/"), Some("h".into()));
        assert_eq!(named("http://h/a/..%2fb/"), None);
    }
}
