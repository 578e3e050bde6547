//! Errors of a pipeline.

use std::io;
use std::path::PathBuf;

use longhaul_core::ranges::ByteRange;
use thiserror::Error;

use crate::sink::output_error::OutputError;

/// The reason why a pipeline stops, or a file does not get its final name.
#[derive(Debug, Error)]
pub enum PipelineError {
    /// The output failed.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A thread could not be started.
    #[error("cannot start a thread for {0}: {1}")]
    Thread(&'static str, io::Error),
    /// A thread panicked.
    #[error("{0} stopped at a defect of longhaul; please report it with the message of the panic")]
    Panicked(&'static str),
    /// Not every byte is written.
    #[error("cannot complete {path}: {lacking} ranges of it are not written, the first of them {first}")]
    Hole {
        /// The partial file.
        path: PathBuf,
        /// The number of missing ranges.
        lacking: usize,
        /// The first missing range.
        first: ByteRange,
    },
    /// A write, a commit or a thread has failed or is still running.
    #[error("cannot complete {0}: not all that was received for it could be written")]
    Failed(PathBuf),
}
