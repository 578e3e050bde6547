//! Trees of files: what a server's directory holds as jobs for here, and what a directory here holds as uploads.
//!
//! ```text
//!  get -r   RemoteTree::walk --> Walked::File --> is_unchanged? --> Engine::run
//!              (a listing as it is needed, one open at each level; names are checked; directories are made)
//!  put -r   UploadTree::walk --> Walked::File --> is_unchanged? --> upload::put
//!              (directories are made on the server before what they hold)
//! ```
//!
//! A walk holds one level of entries for each directory above it, and never a whole tree.

mod remote_tree;
mod remote_walk;
mod upload_tree;
mod walk_error;

pub use remote_tree::{ListedFile, RemoteTree, TreeOptions};
pub use remote_walk::RemoteWalk;
pub use upload_tree::{LocalFile, UploadTree, UploadWalk};
pub use walk_error::{TreeError, WalkError};

/// What a walk meets.
#[derive(Debug)]
pub enum Walked<F> {
    /// A file to transfer.
    File(F),
    /// What is refused or cannot be listed: the tree will lack it.
    Failed(WalkError),
    /// What is no file, and is left out.
    Skipped {
        /// Its path or URL, without secrets.
        what: String,
        /// Why.
        why: &'static str,
    },
}
