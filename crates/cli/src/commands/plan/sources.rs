//! The operands of a plan: sources, and the target.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, bail};
use longhaul_engine::source::http::SafeUrl;
use longhaul_farm::plan_target::PlanTarget;
use url::Url;

use super::PlanArgs;
use crate::commands::get::url_list::is_fetched;
use crate::url_text;

/// A source of a plan.
#[derive(Debug)]
pub(super) enum PlanSource {
    /// A file or a directory of a server.
    Server(Url),
    /// A file or a directory that all workers see, by its absolute path.
    Local(PathBuf),
}

/// Separates the sources from the target.
pub(super) fn operands(args: &PlanArgs) -> anyhow::Result<(Vec<PlanSource>, PlanTarget)> {
    let Some((target, sources)) = args.operands.split_last() else { bail!("name a target") };
    let target = target_of(target)?;
    if sources.is_empty() && args.input.is_none() {
        if let PlanTarget::Server(url) = &target {
            bail!(
                "the last operand is the target, the directory that receives the files or the URL of one; {url} is taken for it: \
                 name the files before it"
            );
        }
        bail!("name the URLs or paths of files before the target, or a list of URLs by -i");
    }
    let sources: Vec<PlanSource> =
        sources.iter().map(|text| source_of(text)).collect::<anyhow::Result<_>>()?;
    for source in &sources {
        match source {
            PlanSource::Server(from) => refuse_relay(from, &target)?,
            PlanSource::Local(path) => {
                refuse_source_in(&target, path)?;
                refuse_overlap(path, &target, args.output.as_deref().unwrap_or(Path::new("")))?;
            }
        }
    }
    Ok((sources, target))
}

fn target_of(operand: &Path) -> anyhow::Result<PlanTarget> {
    let Some(url) = url_of(operand)? else {
        let path = direct(operand).with_context(|| format!("cannot use the target {}", operand.display()))?;
        return Ok(PlanTarget::Directory(path));
    };
    if let Some(path) = local_path(&url) {
        return Ok(PlanTarget::Directory(path));
    }
    checked(&url)?;
    if url.query().is_some() || url.fragment().is_some() {
        bail!("{} has a query or a fragment: name a directory of the server", SafeUrl::of(&url));
    }
    Ok(url.into())
}

fn source_of(operand: &Path) -> anyhow::Result<PlanSource> {
    let Some(url) = url_of(operand)? else { return local_source(operand) };
    if let Some(path) = local_path(&url) {
        return local_source(&path);
    }
    checked(&url)?;
    Ok(PlanSource::Server(url))
}

fn local_source(path: &Path) -> anyhow::Result<PlanSource> {
    let shown = path.display();
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let why = url_text::parse(&shown.to_string()).err().unwrap_or_default();
            bail!("{shown}: there is no such file here, and {why}");
        }
        found => found.with_context(|| format!("cannot read {shown}"))?,
    };
    Ok(PlanSource::Local(direct(path).with_context(|| format!("cannot read {shown}"))?))
}

/// Returns the absolute path without `..`, which leads elsewhere behind a symbolic link, and
/// nowhere behind a directory that does not exist yet.
fn direct(path: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(path)?;
    let parts: Vec<Component<'_>> = path.components().collect();
    let Some(last) = parts.iter().rposition(|part| *part == Component::ParentDir) else { return Ok(path) };
    let above: PathBuf = parts[..=last].iter().collect();
    Ok(above.canonicalize()?.join(parts[last + 1..].iter().collect::<PathBuf>()))
}

fn url_of(operand: &Path) -> anyhow::Result<Option<Url>> {
    match operand.to_str().filter(|text| text.contains("://")) {
        Some(text) => url_text::parse(text).map(Some).map_err(|why| anyhow::anyhow!("{text}: {why}")),
        None => Ok(None),
    }
}

/// Returns the path that a URL of the scheme `file` names on this host.
pub(super) fn local_path(url: &Url) -> Option<PathBuf> {
    (url.scheme() == "file").then(|| url.to_file_path().ok()).flatten()
}

/// Refuses a URL that is neither fetched nor uploaded to, or whose login every reader of the plan
/// would see.
pub(super) fn checked(url: &Url) -> anyhow::Result<()> {
    let shown = SafeUrl::of(url);
    if !is_fetched(url) {
        bail!("not a URL that can be fetched: {shown}");
    }
    if !url.username().is_empty() || url.password().is_some() {
        bail!(
            "a plan holds no login: leave it out of {shown}, and give it to plan and to work by --user or .netrc"
        );
    }
    Ok(())
}

/// Refuses to move a file from one server to another.
pub(super) fn refuse_relay(from: &Url, target: &PlanTarget) -> anyhow::Result<()> {
    match target {
        PlanTarget::Directory(_) => Ok(()),
        PlanTarget::Server(to) => bail!(
            "{} cannot be sent to {to}: only local files are; fetch it into a directory first, by a plan of its own",
            SafeUrl::of(from)
        ),
    }
}

/// Refuses a local source within the target: the copy of another source could get its name.
pub(super) fn refuse_source_in(target: &PlanTarget, source: &Path) -> anyhow::Result<()> {
    match target.directory().filter(|target| is_within(source, target)) {
        Some(target) => bail!(
            "{} lies in the target {}, where copies may replace it: give another target",
            source.display(),
            target.display()
        ),
        None => Ok(()),
    }
}

/// Refuses a directory that would receive what is planned of it, or the plan itself.
fn refuse_overlap(source: &Path, target: &PlanTarget, plan: &Path) -> anyhow::Result<()> {
    let shown = source.display();
    if let Some(target) = target.directory().filter(|target| is_within(target, source)) {
        bail!("the target {} lies in {shown}, which is planned: give another one", target.display());
    }
    if is_within(plan, source) {
        bail!("the plan {} lies in {shown}, which is planned: write it elsewhere", plan.display());
    }
    Ok(())
}

/// Returns whether the part of a path that exists is a directory, or lies in it.
fn is_within(path: &Path, directory: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let path = std::path::absolute(path).ok();
    let existing = path.iter().flat_map(|path| path.ancestors()).find_map(|path| path.canonicalize().ok());
    let wanted = identity(directory);
    wanted.is_some() && existing.is_some_and(|path| path.ancestors().any(|path| identity(path) == wanted))
}
