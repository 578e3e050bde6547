//! The directory of a scenario's results.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use longhaul_core::failure::FailureKind;
use longhaul_sys::atomic_file;
use longhaul_sys::if_exists::if_exists;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::error::LabError;

use super::plan::Execution;
use super::plot::Plot;
use super::runner::ExecutionPhase;

/// The command-line option that sets the results directory.
pub(super) const OUT_OPTION: &str = "--out";

/// A results directory, locked against concurrent experiments.
#[derive(Debug)]
pub struct ResultsDirectory {
    directory: PathBuf,
    /// Holds the lock.
    _held: File,
}

/// The files of one execution.
pub(super) struct ExecutionFiles {
    /// The client command's standard output.
    pub(super) client: PathBuf,
    /// The client command's standard error.
    pub(super) client_errors: PathBuf,
    /// Output of the server command.
    pub(super) server: PathBuf,
    /// Output of setup and cleanup.
    pub(super) machine: PathBuf,
    /// Record of the client command, if any.
    pub(super) record: PathBuf,
    /// Record of the server command, if any.
    pub(super) server_record: PathBuf,
}

impl ExecutionFiles {
    fn all(&self) -> [&Path; 6] {
        [&self.client, &self.client_errors, &self.server, &self.machine, &self.record, &self.server_record]
    }
}

/// Files of an execution, renamed while it is repeated.
pub(super) struct SavedFiles {
    /// Original and temporary path of each file.
    moved: Vec<(PathBuf, PathBuf)>,
}

impl SavedFiles {
    /// Restores the files, replacing those of the repetition.
    pub(super) fn put_back(self) -> Result<(), LabError> {
        self.moved.into_iter().try_for_each(|(path, aside)| match fs::rename(&aside, &path) {
            // The file did not exist before; remove the repetition's.
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => remove_file(&path),
            other => other.map_err(LabError::write(&path)),
        })
    }

    /// Removes the renamed files.
    pub(super) fn remove(self) -> Result<(), LabError> {
        self.moved.iter().try_for_each(|(_, aside)| remove_file(aside))
    }
}

impl ResultsDirectory {
    /// Creates the directory if needed, and locks it.
    ///
    /// # Errors
    /// Fails if it cannot be created, or if another experiment writes to it.
    pub fn open(directory: &Path) -> Result<Self, LabError> {
        let failed = LabError::create(directory, OUT_OPTION);
        fs::create_dir_all(directory.join(RUNS)).map_err(&failed)?;
        let directory = directory.canonicalize().map_err(&failed)?;
        let held = File::open(&directory).map_err(&failed)?;
        match rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { directory, _held: held }),
            Err(Errno::WOULDBLOCK) => {
                let remedy = "wait for its end, or choose another place with --out";
                let message =
                    format!("another `longhaul lab run` writes to {}: {remedy}", directory.display());
                Err(LabError::failed(FailureKind::CannotCreate, message))
            }
            Err(errno) => Err(failed(errno.into())),
        }
    }

    /// Returns the directory's absolute path.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn results(&self) -> PathBuf {
        self.directory.join(RESULTS)
    }

    /// Returns the path of the page with all plots.
    pub fn plots_page(&self) -> PathBuf {
        self.directory.join("plots.html")
    }

    /// Returns the path of the page with the records.
    pub fn records_page(&self) -> PathBuf {
        self.directory.join("records.html")
    }

    pub(super) fn csv(&self) -> PathBuf {
        self.directory.join("results.csv")
    }

    pub(super) fn summary(&self) -> PathBuf {
        self.directory.join("summary.md")
    }

    /// Removes the drawings of a plot.
    pub(super) fn clear_plot(&self, plot: &Plot) -> Result<(), LabError> {
        plot.files().iter().try_for_each(|file| remove_file(&self.directory.join(file)))
    }

    pub(super) fn files(&self, execution: &Execution<'_>) -> ExecutionFiles {
        let stem = execution.stem();
        let [client, client_errors, server, machine, server_record, record] =
            ENDS.map(|end| self.directory.join(RUNS).join(format!("{stem}{end}")));
        ExecutionFiles { client, client_errors, server, machine, record, server_record }
    }

    /// Removes the files of all executions, earlier ones included, the tables and the pages.
    pub(super) fn clear_all(&self) -> Result<(), LabError> {
        let logs = [ExecutionPhase::Prepare, ExecutionPhase::Cleanup].map(|phase| self.log_path(phase));
        let tables = [self.csv(), self.summary(), self.plots_page(), self.records_page()];
        logs.iter().chain(&tables).try_for_each(|path| remove_file(path))?;
        let replaced = [self.results(), self.csv(), self.summary()];
        replaced.iter().try_for_each(|path| remove_unfinished(path))?;
        let directory = self.directory.join(RUNS);
        let failed = LabError::read(&directory);
        for entry in fs::read_dir(&directory).map_err(&failed)? {
            let path = entry.map_err(&failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if ENDS.iter().chain(&EARLIER_ENDS).any(|end| name.ends_with(end)) {
                remove_file(&path)?;
            }
        }
        Ok(())
    }

    /// Creates an empty log for a command of the whole scenario.
    pub(super) fn log(&self, phase: ExecutionPhase) -> Result<PathBuf, LabError> {
        let path = self.log_path(phase);
        File::create(&path).map_err(LabError::create(&path, OUT_OPTION))?;
        Ok(path)
    }

    fn log_path(&self, phase: ExecutionPhase) -> PathBuf {
        self.directory.join(RUNS).join(format!("{}.log", phase.name()))
    }

    /// Returns the path of an execution's client record, if it exists.
    pub(super) fn record_of(&self, execution: &Execution<'_>) -> Option<PathBuf> {
        Some(self.files(execution).record).filter(|record| record.is_file())
    }

    /// Renames the files of an execution, so that a repetition does not overwrite them.
    pub(super) fn set_aside(&self, execution: &Execution<'_>) -> Result<SavedFiles, LabError> {
        let mut moved = Vec::new();
        for path in self.files(execution).all() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let aside = path.with_file_name(format!(".{name}"));
            match fs::rename(path, &aside) {
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => remove_file(&aside)?,
                other => other.map_err(LabError::write(&aside))?,
            }
            moved.push((path.to_owned(), aside));
        }
        Ok(SavedFiles { moved })
    }

    /// Removes the files of an earlier execution with this name.
    pub(super) fn clear(&self, execution: &Execution<'_>) -> Result<ExecutionFiles, LabError> {
        let files = self.files(execution);
        for path in files.all() {
            remove_file(path)?;
        }
        Ok(files)
    }
}

/// File name of all results.
pub(super) const RESULTS: &str = "results.json";
/// Suffixes of an execution's files.
const ENDS: [&str; 6] =
    ["-client.out", "-client.err", "-server.log", "-machine.log", "-server.jsonl", ".jsonl"];
/// Suffixes of earlier versions, where they differ.
const EARLIER_ENDS: [&str; 3] = ["-near.out", "-near.err", "-far.log"];
/// Directory of the executions' output and records.
const RUNS: &str = "runs";

/// Replaces a file's content atomically; the old content survives an error or a crash.
pub(super) fn replace_file(path: &Path, content: &[u8]) -> Result<(), LabError> {
    atomic_file::replace(path, content, 0o666).map_err(LabError::write(path))
}

/// Removes temporary files of interrupted replacements.
fn remove_unfinished(path: &Path) -> Result<(), LabError> {
    atomic_file::remove_unfinished(path).map_err(LabError::write(path))
}

/// Removes a file, if it exists.
pub(super) fn remove_file(path: &Path) -> Result<(), LabError> {
    if_exists(fs::remove_file(path)).map(drop).map_err(LabError::write(path))
}
