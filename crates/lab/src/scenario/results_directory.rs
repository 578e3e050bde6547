//! The directory of a scenario's results.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::error::LabError;

use super::atomic_file::{remove, remove_unfinished};
use super::plan::Execution;
use super::plot::Plot;
use super::runner::ExecutionPhase;

/// The option that chooses the directory of results.
pub(super) const OUT_OPTION: &str = "--out";

/// A directory for results, held against a second experiment.
#[derive(Debug)]
pub struct Output {
    directory: PathBuf,
    /// Carries the lock.
    _held: File,
}

/// The files of one execution.
pub(super) struct Files {
    /// The client command's standard output.
    pub(super) client: PathBuf,
    /// Its standard error.
    pub(super) client_errors: PathBuf,
    /// All that the server command says.
    pub(super) server: PathBuf,
    /// All that setup and cleanup say.
    pub(super) machine: PathBuf,
    /// What the client command may record.
    pub(super) record: PathBuf,
    /// What the server command may record.
    pub(super) server_record: PathBuf,
}

impl Files {
    fn all(&self) -> [&Path; 6] {
        [&self.client, &self.client_errors, &self.server, &self.machine, &self.record, &self.server_record]
    }
}

/// The files of an execution under other names, while it is repeated.
pub(super) struct FilesAside {
    /// Where each belongs, and where it is.
    moved: Vec<(PathBuf, PathBuf)>,
}

impl FilesAside {
    /// Puts them back over those of the repetition.
    pub(super) fn put_back(self) -> Result<(), LabError> {
        self.moved.into_iter().try_for_each(|(path, aside)| match fs::rename(&aside, &path) {
            // It had no such file; the repetition may have made one.
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => remove(&path),
            other => other.map_err(|cause| LabError::Write { path, cause }),
        })
    }

    /// Removes them.
    pub(super) fn remove(self) -> Result<(), LabError> {
        self.moved.iter().try_for_each(|(_, aside)| remove(aside))
    }
}

impl Output {
    /// Makes the directory where it is not there, and holds it.
    ///
    /// # Errors
    /// Fails where it cannot be made, and where another experiment writes to it.
    pub fn open(directory: &Path) -> Result<Self, LabError> {
        let failed =
            |cause: io::Error| LabError::Create { path: directory.to_owned(), cause, option: OUT_OPTION };
        fs::create_dir_all(directory.join(RUNS)).map_err(failed)?;
        let directory = directory.canonicalize().map_err(failed)?;
        let held = File::open(&directory).map_err(failed)?;
        match rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { directory, _held: held }),
            Err(Errno::WOULDBLOCK) => Err(LabError::Busy { path: directory }),
            Err(errno) => Err(failed(errno.into())),
        }
    }

    /// Returns where it is, from the root.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn results(&self) -> PathBuf {
        self.directory.join(RESULTS)
    }

    /// Returns where the page with all plots is.
    pub fn plots_page(&self) -> PathBuf {
        self.directory.join("plots.html")
    }

    /// Returns where the page with the records is.
    pub fn records_page(&self) -> PathBuf {
        self.directory.join("records.html")
    }

    pub(super) fn csv(&self) -> PathBuf {
        self.directory.join("results.csv")
    }

    pub(super) fn summary(&self) -> PathBuf {
        self.directory.join("summary.md")
    }

    /// Removes what was drawn of a plot.
    pub(super) fn clear_plot(&self, plot: &Plot) -> Result<(), LabError> {
        plot.files().iter().try_for_each(|file| remove(&self.directory.join(file)))
    }

    pub(super) fn files(&self, execution: &Execution<'_>) -> Files {
        let stem = execution.stem();
        let [client, client_errors, server, machine, server_record, record] =
            ENDS.map(|end| self.directory.join(RUNS).join(format!("{stem}{end}")));
        Files { client, client_errors, server, machine, record, server_record }
    }

    /// Removes the files of all executions, whichever there were, the tables and the pages.
    pub(super) fn clear_all(&self) -> Result<(), LabError> {
        let logs = [ExecutionPhase::Prepare, ExecutionPhase::Cleanup].map(|phase| self.log_path(phase));
        let tables = [self.csv(), self.summary(), self.plots_page(), self.records_page()];
        logs.iter().chain(&tables).try_for_each(|path| remove(path))?;
        let replaced = [self.results(), self.csv(), self.summary()];
        replaced.iter().try_for_each(|path| remove_unfinished(path))?;
        let directory = self.directory.join(RUNS);
        let failed = |cause: io::Error| LabError::Read { path: directory.clone(), cause };
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if ENDS.iter().chain(&EARLIER_ENDS).any(|end| name.ends_with(end)) {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Makes an empty file for what a command of the whole scenario says.
    pub(super) fn log(&self, phase: ExecutionPhase) -> Result<PathBuf, LabError> {
        let path = self.log_path(phase);
        File::create(&path).map_err(|cause| LabError::Create {
            path: path.clone(),
            cause,
            option: OUT_OPTION,
        })?;
        Ok(path)
    }

    fn log_path(&self, phase: ExecutionPhase) -> PathBuf {
        self.directory.join(RUNS).join(format!("{}.log", phase.name()))
    }

    /// Returns where an execution's record is, if its client command has made one.
    pub(super) fn record_of(&self, execution: &Execution<'_>) -> Option<PathBuf> {
        Some(self.files(execution).record).filter(|record| record.is_file())
    }

    /// Gives the files of an execution other names, so that it can run again and they can still be kept.
    pub(super) fn set_aside(&self, execution: &Execution<'_>) -> Result<FilesAside, LabError> {
        let mut moved = Vec::new();
        for path in self.files(execution).all() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let aside = path.with_file_name(format!(".{name}"));
            match fs::rename(path, &aside) {
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => remove(&aside)?,
                other => other.map_err(|cause| LabError::Write { path: aside.clone(), cause })?,
            }
            moved.push((path.to_owned(), aside));
        }
        Ok(FilesAside { moved })
    }

    /// Removes what an earlier execution of the same name has left.
    pub(super) fn clear(&self, execution: &Execution<'_>) -> Result<Files, LabError> {
        let files = self.files(execution);
        for path in files.all() {
            remove(path)?;
        }
        Ok(files)
    }
}

/// All results.
pub(super) const RESULTS: &str = "results.json";
/// How the names of an execution's files end.
const ENDS: [&str; 6] =
    ["-client.out", "-client.err", "-server.log", "-machine.log", "-server.jsonl", ".jsonl"];
/// How they ended in earlier versions, where that differs.
const EARLIER_ENDS: [&str; 3] = ["-near.out", "-near.err", "-far.log"];
/// The directory of what the executions said and recorded.
const RUNS: &str = "runs";
