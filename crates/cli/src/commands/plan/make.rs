//! Lists the sources, and writes the plan.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;

use anyhow::{Context, bail};
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::files_at_once::JobAdmission;
use longhaul_core::proto::http::FileName;
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::engine::Engine;
use longhaul_engine::job::{RangeEvidence, TransferOptions};
use longhaul_engine::sink::memory_budget::AppBuffer;
use longhaul_engine::sink::part_names::is_partial;
use longhaul_engine::source::http::SafeUrl;
use longhaul_engine::tree::{ListedFile, UploadTarget, Walked};
use longhaul_farm::error::FarmError;
use longhaul_farm::plan::PlanHeader;
use longhaul_farm::plan_target::PlanTarget;
use longhaul_farm::plan_writer::{PlanWriter, UnitSize};
use longhaul_farm::unit::{PlannedFile, seconds_of};
use parking_lot::Mutex;
use url::{Position, Url};

use super::sources::{PlanSource, checked, local_path, operands, refuse_relay};
use super::{PlanArgs, limit};
use crate::commands::get::{tree::named_after, url_list};
use crate::{exit, interrupt, say, stdout};

/// The requests for size and time at once, until they prove to be short.
pub(super) const LOOKUPS: usize = 4;

/// The sources and the target of a plan.
pub(super) struct PlanRequest<'a> {
    pub(super) args: &'a PlanArgs,
    pub(super) sources: Vec<PlanSource>,
    pub(super) target: PlanTarget,
    /// The target, if it is of a server.
    pub(super) uploads: Option<UploadTarget>,
    /// The directories of the target that are made for local files, with their largest modes.
    pub(super) directories: Mutex<BTreeMap<PathBuf, u32>>,
    options: TransferOptions,
    engine: Engine,
    pub(super) cancel: Cancel,
    /// Whether ranges combine of the file that a server was asked for last, by scheme and host.
    combining: Mutex<HashMap<String, bool>>,
    /// The first URL: logins are for its server only, as in a worker.
    first: OnceLock<Url>,
}

/// The kind of the failure of the first entry that is left out.
#[derive(Default)]
pub(super) struct LeftOut(Option<FailureKind>);

impl LeftOut {
    /// Names an entry that cannot be planned.
    pub(super) fn add(&mut self, writer: &mut PlanWriter, failure: &Failure) {
        writer.leave_out();
        say::error(format_args!("not planned: {failure}"));
        self.0.get_or_insert(failure.kind);
    }
}

/// Writes the plan; an entry that cannot be planned is named, and makes the exit code one of a
/// failure.
pub(super) fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    let cancel = args.client.connect.cancel();
    let setup = || {
        let (sources, target) = operands(args)?;
        let options = options(args, &sources, &target, &cancel)?;
        let engine = Engine::new(AppBuffer::Auto);
        let uploads = target.server().map(|url| engine.upload_target(url, &options)).transpose()?;
        let output = args.output.clone().unwrap_or_default();
        let size = UnitSize { bytes: args.units.unit_size, files: args.units.unit_files };
        interrupt::listen(&cancel)?;
        let mut writer = PlanWriter::create(&output, target.clone(), size, args.units.lease)?;
        writer.set_limits(limit::of_plan(args));
        Ok::<_, anyhow::Error>((
            PlanRequest {
                args,
                sources,
                target,
                uploads,
                directories: Mutex::default(),
                options,
                engine,
                cancel: cancel.clone(),
                combining: Mutex::default(),
                first: OnceLock::new(),
            },
            writer,
        ))
    };
    let (request, mut writer) = setup().map_err(|error| exit::not_set_up(&error, &cancel))?;
    let listed = request.list(&mut writer)?;
    let made = if cancel.is_cancelled() { Ok(()) } else { request.make_directories() };
    if cancel.is_cancelled() {
        let kind = exit::of_stop(FailureKind::Interrupted, &cancel);
        return Ok(exit::said("stopped: nothing is planned", kind));
    }
    made?;
    if writer.holds_queries() {
        tracing::warn!("URLs with a query may be signed: only you can read the plan, and run its workers");
    }
    let header = writer.finish()?;
    say_plan(args.output.as_deref().unwrap_or(Path::new("")), &header);
    Ok(exit::of_end(listed.0.map_or(Ok(()), Err)))
}

fn options(
    args: &PlanArgs,
    sources: &[PlanSource],
    target: &PlanTarget,
    cancel: &Cancel,
) -> anyhow::Result<TransferOptions> {
    let of_server = |source: &PlanSource| match source {
        PlanSource::Server(url) => Some(url.clone()),
        PlanSource::Local(_) => None,
    };
    let server = target.server().cloned().or_else(|| sources.iter().find_map(of_server));
    server.map_or(Ok(()), |url| args.client.check_cleartext(&url))?;
    args.client.options(cancel)
}

impl PlanRequest<'_> {
    /// Adds the files of all sources; returns the code of the first entry that was left out.
    fn list(&self, writer: &mut PlanWriter) -> anyhow::Result<LeftOut> {
        let mut left_out = LeftOut::default();
        if let Some(list) = &self.args.input {
            let add = |file| self.add_listed(writer, file);
            let is_source = |url: &Url| url_list::is_fetched(url) || local_path(url).is_some();
            let read = url_list::read_each(list, &self.cancel, is_source, add);
            read.map_err(|error| exit::not_set_up(&error, &self.cancel))?;
        }
        for source in &self.sources {
            match source {
                PlanSource::Local(path) => self.add_local(writer, path, &mut left_out)?,
                PlanSource::Server(url) => {
                    self.first.get_or_init(|| url.clone());
                    match self.args.recursive {
                        true => self.add_tree(writer, url, &mut left_out)?,
                        false => self.add_file(writer, url)?,
                    }
                }
            }
            if self.cancel.is_cancelled() {
                break;
            }
        }
        Ok(left_out)
    }

    fn add_listed(&self, writer: &mut PlanWriter, file: url_list::ListedFile) -> anyhow::Result<()> {
        let Some(url) = file.urls.first() else { return Ok(()) };
        let shown = SafeUrl::of(url);
        if file.dir.is_some() {
            bail!("{shown}: a plan has one target; write out=DIR/NAME for a path below it, instead of dir=");
        }
        if !file.headers.is_empty() {
            bail!("{shown}: a plan holds no headers; give them to each worker by --header");
        }
        if let Some(source) = local_path(url) {
            return self.add_listed_local(writer, &source, file);
        }
        file.urls.iter().try_for_each(checked)?;
        refuse_relay(url, &self.target)?;
        self.first.get_or_init(|| url.clone());
        let path = match file.name {
            Some(name) => PathBuf::from(name),
            None => name_of(url)?,
        };
        let urls = file.urls.into_iter().map(String::from).collect();
        let mut file = PlannedFile { urls, path, size: file.size, modified: None, checksum: file.checksum };
        if writer.is_cut(&file) && self.combines(&mut file, true) {
            writer.add_in_ranges(file)?;
        } else {
            writer.add(file)?;
        }
        Ok(())
    }

    /// Returns whether ranges of a file combine, as its server shows it now; in doubt they do not,
    /// and the file is planned as one. A file without checksum gets the one that its server states.
    /// With `once`, one file of each server is asked for.
    fn combines(&self, file: &mut PlannedFile, once: bool) -> bool {
        let url = file.urls.first().and_then(|url| Url::parse(url).ok());
        let Some((url, size)) = url.zip(file.size) else { return false };
        let server = format!("{}:{}", url.scheme(), &url[Position::BeforeHost..Position::BeforePath]);
        let known = self.combining.lock().get(&server).copied();
        if let Some(known) = known.filter(|_| once) {
            return known;
        }
        let logins_for = self.first.get().unwrap_or(&url);
        let asked = self.engine.combines_ranges(&url, size, &self.options, logins_for, &self.cancel);
        let shown = SafeUrl::of(&url);
        match asked {
            Ok(RangeEvidence { combines, digest }) => {
                if combines {
                    file.checksum = file.checksum.take().or(digest);
                } else if known != Some(false) {
                    tracing::warn!(
                        "{shown} is not cut into ranges, and one worker fetches it: it does not show that ranges of it are of one \
                         state; further such files of this server are not named"
                    );
                }
                self.combining.lock().insert(server, combines);
                combines
            }
            // It says nothing of the next file.
            Err(error) => {
                if !self.cancel.is_cancelled() {
                    tracing::warn!("{shown} is not cut into ranges, and one worker fetches it: {error}");
                }
                false
            }
        }
    }

    /// Returns the directory that receives the files of servers.
    fn directory(&self) -> &Path {
        self.target.directory().unwrap_or(Path::new(""))
    }

    /// Adds one file, with the size and the time that its server states now.
    fn add_file(&self, writer: &mut PlanWriter, url: &Url) -> anyhow::Result<()> {
        let name = name_of(url).map_err(|error| exit::not_set_up(&error, &self.cancel))?;
        let tree = self.engine.remote_tree(url, self.directory(), &self.options)?;
        let file = tree.look(name, &self.cancel)?;
        Ok(self.add(&Mutex::new(writer), file, Path::new(""))?)
    }

    fn add_tree(&self, writer: &mut PlanWriter, url: &Url, left_out: &mut LeftOut) -> anyhow::Result<()> {
        let below = match self.sources.len() {
            1 => PathBuf::new(),
            _ => named_after(url).map_err(|error| exit::not_set_up(&error, &self.cancel))?,
        };
        let tree = self.engine.remote_tree(url, &self.directory().join(&below), &self.options)?;
        let (stop, failed) = (self.cancel.child(), Mutex::new(None));
        let (writer, left_out) = (Mutex::new(writer), Mutex::new(left_out));
        let leave_out = |failure: &Failure| left_out.lock().add(&mut writer.lock(), failure);
        let add = |walked| match walked {
            Walked::File(mut file) => match tree.complete(&mut file, &stop) {
                Ok(()) => match self.add(&writer, file, &below) {
                    Ok(()) => {}
                    // An object store may have both.
                    Err(error @ FarmError::FileAndDirectory(_)) => {
                        leave_out(&Failure::new(error.kind(), error.to_string()));
                    }
                    Err(error) => {
                        failed.lock().get_or_insert(error);
                        stop.cancel();
                    }
                },
                Err(_) if stop.is_cancelled() => {}
                Err(failure) => leave_out(&failure),
            },
            Walked::Skipped { what, why } => tracing::warn!("leaving out {what}: {why}"),
            Walked::Failed(error) => leave_out(&error.failure),
        };
        // Many servers list neither size nor time: a request for each file, several at once.
        self.engine.run_each(
            tree.walk(&stop),
            |_| None,
            JobAdmission::new(LOOKUPS),
            &stop,
            |walked| {
                add(walked);
                Some(Bytes::ZERO)
            },
        );
        failed.into_inner().map_or(Ok(()), |error| Err(error.into()))
    }

    fn add(&self, writer: &Mutex<&mut PlanWriter>, file: ListedFile, below: &Path) -> Result<(), FarmError> {
        let ListedFile { url, path, size, modified } = file;
        let (path, modified) = (below.join(path), modified.and_then(seconds_of));
        let mut file = PlannedFile { urls: vec![url.into()], path, size, modified, checksum: None };
        // Other threads add files while this one asks a server.
        let is_cut = writer.lock().is_cut(&file);
        let is_cut = is_cut && self.combines(&mut file, false);
        let mut writer = writer.lock();
        if is_cut { writer.add_in_ranges(file) } else { writer.add(file) }
    }
}

/// Returns the name of a file by its URL.
fn name_of(url: &Url) -> anyhow::Result<PathBuf> {
    let shown = SafeUrl::of(url);
    let name = FileName::from_url_path(url.path()).with_context(|| {
        format!("{shown} names no file: use -r for a directory, or out=NAME in a list (-i)")
    })?;
    if is_partial(name.as_str()) {
        bail!("{shown}: partial files have such names; give another by out=NAME in a list (-i)");
    }
    Ok(name.as_str().into())
}

fn say_plan(plan: &Path, header: &PlanHeader) {
    let several = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let counts = header.counts;
    let unknown = match counts.files_of_unknown_size {
        0 => String::new(),
        files => format!(", {files} of unknown size"),
    };
    stdout::line(format_args!(
        "{}: {} of {}, {}{unknown}, into {}\nstart any number of workers: longhaul work {}",
        plan.display(),
        several(counts.units.into(), "unit"),
        several(counts.files, "file"),
        counts.bytes,
        header.target,
        plan.display()
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_has_the_name_that_get_gives_it() {
        let named = |url: &str| name_of(&url.parse().unwrap()).ok();
        assert_eq!(named("http://h/a/b%20c?d"), Some("b c".into()));
        assert_eq!(named("http://h/a/.bashrc"), Some("_.bashrc".into()));
        assert_eq!(named("http://h/a/"), None);
        assert_eq!(named("http://h/f.longhaul-part"), None);
    }
}
