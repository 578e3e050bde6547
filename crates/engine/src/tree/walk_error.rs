//! Why a part of a tree is not transferred.

use std::io;
use std::path::PathBuf;

use longhaul_core::proto::listing::NameError;
use thiserror::Error;

use crate::failure::FailureKind;
use crate::source::http::{HttpError, SafeUrl};
use crate::transfer::error::SourceError;

/// Why an entry or a directory is left out; the rest of the tree goes on.
#[derive(Debug, Error)]
pub enum WalkError {
    /// The name of an entry cannot be that of a file.
    #[error("refused '{name}' in {directory}: {source}")]
    Name {
        /// The directory.
        directory: SafeUrl,
        /// The name, escaped.
        name: String,
        /// What is wrong with it.
        source: NameError,
    },
    /// The name is one that partial files have here.
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
        /// The most levels.
        most: usize,
    },
    /// A directory is one that it lies in.
    #[error("refused {directory}: it is {above}, a directory that it lies in")]
    Loop {
        /// The directory.
        directory: SafeUrl,
        /// The same one further up.
        above: SafeUrl,
    },
    /// A directory's listing is at a place outside of the tree.
    #[error("refused {directory}: the server lists {elsewhere} instead, which is not below it")]
    Elsewhere {
        /// The directory.
        directory: SafeUrl,
        /// Where the server led.
        elsewhere: SafeUrl,
    },
    /// A directory cannot be listed, or an entry of it cannot be understood.
    #[error("{source}")]
    Listing {
        /// The directory.
        directory: SafeUrl,
        /// Why.
        source: SourceError,
    },
    /// A directory cannot be made here.
    #[error("cannot make the directory {}: {source}", .path.display())]
    MakeDirectory {
        /// The directory.
        path: PathBuf,
        /// What the kernel says, or what stands in the way.
        source: io::Error,
    },
    /// A directory here cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    ReadDirectory {
        /// The directory.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// A directory cannot be made on the server.
    #[error("cannot make the directory {directory} on the server: {source}")]
    MakeRemote {
        /// The directory.
        directory: SafeUrl,
        /// Why.
        source: SourceError,
    },
}

impl WalkError {
    /// Returns the class of the error, for exit codes.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Listing { source, .. } | Self::MakeRemote { source, .. } => source.class,
            Self::MakeDirectory { .. } => FailureKind::CannotCreate,
            Self::ReadDirectory { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                FailureKind::Denied
            }
            Self::ReadDirectory { .. } => FailureKind::NotFound,
            _ => FailureKind::Data,
        }
    }

    /// Returns the URL or the path of what is left out, without secrets.
    pub fn what(&self) -> String {
        match self {
            Self::Name { directory, .. }
            | Self::PartialName { directory, .. }
            | Self::Twice { directory, .. }
            | Self::Deep { directory, .. }
            | Self::Loop { directory, .. }
            | Self::Elsewhere { directory, .. }
            | Self::Listing { directory, .. }
            | Self::MakeRemote { directory, .. } => directory.to_string(),
            Self::MakeDirectory { path, .. } | Self::ReadDirectory { path, .. } => path.display().to_string(),
        }
    }
}

/// Why the root of a tree cannot be used.
#[derive(Debug, Error)]
pub enum TreeError {
    /// The directory here cannot be made or opened.
    #[error("cannot make the directory {}: {source}", .path.display())]
    Target {
        /// The directory.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The directory to send cannot be read.
    #[error("cannot read the directory {}: {source}", .path.display())]
    Source {
        /// The directory.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The URL or the settings of the client cannot be used.
    #[error(transparent)]
    Http(#[from] HttpError),
}

impl TreeError {
    /// Returns the class of the error, for exit codes.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Target { .. } => FailureKind::CannotCreate,
            Self::Source { .. } => FailureKind::NotFound,
            Self::Http(error) => error.kind().into(),
        }
    }
}
