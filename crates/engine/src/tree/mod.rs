//! Trees of files: turns a server's directory into jobs, and a local directory into uploads.
//!
//! ```text
//!  get -r   RemoteTree::walk --> Walked::File --> is_unchanged? --> Engine::run
//!              (a listing as it is needed, one open at each level; names are checked; directories are made)
//!  put -r   upload_walk      --> Walked::File --> is_unchanged? --> upload::put
//!              (directories are made on the server before what they hold)
//! ```
//!
//! Plans walk a [`LocalWalk`] themselves, whether its files are copied or uploaded.
//!
//! A walk holds one level of entries for each open directory, never a whole tree.

mod local_walk;
mod remote_tree;
mod remote_walk;
mod upload_target;
mod upload_walk;

pub use local_walk::{LocalEntry, LocalFile, LocalWalk};
pub use remote_tree::{ListedFile, RemoteTree};
pub use remote_walk::RemoteWalk;
pub use upload_target::UploadTarget;
pub use upload_walk::{UploadFile, UploadWalk};

use longhaul_core::failure::{Failure, FailureKind};

use crate::source::http::SafeUrl;

/// An item of a walk.
#[derive(Debug)]
pub enum Walked<F> {
    /// A file to transfer.
    File(F),
    /// An entry that is refused or cannot be listed; the tree will be incomplete.
    Failed(WalkError),
    /// An entry that is not a file and is left out.
    Skipped {
        /// The path or URL, without secrets.
        what: String,
        /// The reason.
        why: &'static str,
    },
}

impl<F> Walked<F> {
    /// Returns the file to transfer, if it is one.
    pub fn file(&self) -> Option<&F> {
        if let Self::File(file) = self { Some(file) } else { None }
    }

    /// Converts the file.
    fn map<G>(self, convert: impl FnOnce(F) -> G) -> Walked<G> {
        match self {
            Self::File(file) => Walked::File(convert(file)),
            Self::Failed(error) => Walked::Failed(error),
            Self::Skipped { what, why } => Walked::Skipped { what, why },
        }
    }
}

/// The reason why an entry or a directory is left out; the walk continues.
#[derive(Debug)]
pub struct WalkError {
    /// The URL or path of what is left out, without secrets.
    pub what: String,
    /// The reason.
    pub failure: Failure,
}

impl WalkError {
    /// Creates the error of an entry that is refused, or of a directory that is.
    fn refused(directory: &SafeUrl, message: String) -> Self {
        Self { what: directory.to_string(), failure: Failure::new(FailureKind::Data, message) }
    }
}
