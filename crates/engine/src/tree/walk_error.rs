//! Errors of a walk.

use std::io;
use std::path::PathBuf;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::listing::NameError;
use thiserror::Error;

use crate::source::http::{HttpError, SafeUrl};

/// The reason why an entry or a directory is left out; the walk continues.
#[derive(Debug, Error)]
pub enum WalkError {
    /// The name of an entry is not a valid file name.
    #[error("refused '{name}' in {directory}: {source}")]
    Name {
        /// The directory.
        directory: SafeUrl,
        /// The name, escaped.
        name: String,
        /// The error.
        source: NameError,
    },
    /// The name is reserved for partial files.
    #[error("refused '{name}' in {directory}: partial files have such names; rename it on the server")]
    PartialName {
        /// The directory.
        directory: SafeUrl,
        /// The name, escaped.
        name: String,
    },
    /// Two entries of a directory have one name.
    #[error("refused a second '{name}' in {directory}: another entry has the same name")]
    Twice {
        /// The directory.
        directory: SafeUrl,
        /// The name, escaped.
        name: String,
    },
    /// A directory is nested too deeply.
    #[error(
        "refused {directory}: it is more than {most} directories deep, perhaps by a link to a directory above it"
    )]
    Deep {
        /// The directory.
        directory: SafeUrl,
        /// The maximum depth.
        most: usize,
    },
    /// A directory is one of its own parents.
    #[error("refused {directory}: it is {above}, a directory that it lies in")]
    Loop {
        /// The directory.
        directory: SafeUrl,
        /// The URL at the higher level.
        above: SafeUrl,
    },
    /// A directory's listing is at a URL outside of the tree.
    #[error("refused {directory}: the server lists {elsewhere} instead, which is not below it")]
    Elsewhere {
        /// The directory.
        directory: SafeUrl,
        /// The URL that the server listed.
        elsewhere: SafeUrl,
    },
    /// No file was found, and a directory has links, but none to an entry of it.
    #[error("found no file: {directory} links to no entry of it; fetch the URLs of files by -i FILE")]
    NothingBelow {
        /// The directory.
        directory: SafeUrl,
    },
    /// A directory cannot be listed, or an entry cannot be parsed.
    #[error("{source}")]
    Listing {
        /// The directory.
        directory: SafeUrl,
        /// Why.
        source: Failure,
    },
    /// A local directory cannot be created.
    #[error("cannot make the directory {}: {source}", .path.display())]
    MakeDirectory {
        /// The directory.
        path: PathBuf,
        /// The kernel's error, or the obstacle.
        source: io::Error,
    },
    /// A local directory cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    ReadDirectory {
        /// The directory.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A directory cannot be created on the server.
    #[error("cannot make the directory {directory} on the server: {source}")]
    MakeRemote {
        /// The directory.
        directory: SafeUrl,
        /// Why.
        source: Failure,
    },
}

impl WalkError {
    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Listing { source, .. } | Self::MakeRemote { source, .. } => source.kind,
            Self::MakeDirectory { .. } => FailureKind::CannotCreate,
            Self::ReadDirectory { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                FailureKind::Denied
            }
            Self::ReadDirectory { .. } => FailureKind::NotFound,
            _ => FailureKind::Data,
        }
    }

    /// Returns the URL or path of the entry left out, without secrets.
    pub fn what(&self) -> String {
        match self {
            Self::Name { directory, .. }
            | Self::PartialName { directory, .. }
            | Self::Twice { directory, .. }
            | Self::Deep { directory, .. }
            | Self::Loop { directory, .. }
            | Self::Elsewhere { directory, .. }
            | Self::NothingBelow { directory }
            | Self::Listing { directory, .. }
            | Self::MakeRemote { directory, .. } => directory.to_string(),
            Self::MakeDirectory { path, .. } | Self::ReadDirectory { path, .. } => path.display().to_string(),
        }
    }
}

/// The reason why the root of a tree cannot be used.
#[derive(Debug, Error)]
pub enum TreeError {
    /// The local directory cannot be created or opened.
    #[error("cannot make the directory {}: {source}", .path.display())]
    Target {
        /// The directory.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The local directory cannot be read.
    #[error("cannot read the directory {}: {source}", .path.display())]
    Source {
        /// The directory.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The URL or the client's settings are invalid.
    #[error(transparent)]
    Http(#[from] HttpError),
}

impl TreeError {
    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Target { .. } => FailureKind::CannotCreate,
            Self::Source { .. } => FailureKind::NotFound,
            Self::Http(error) => error.kind(),
        }
    }
}
