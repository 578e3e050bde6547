//! The directories of tokens: looked for on the threads of their file systems, which may hang.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::paths::disks::DiskError;
use crate::reply::static_files::StaticFiles;

/// How long a file system may take to answer. A hung one must not keep a revoked token in force.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The directory that a token is for.
#[derive(Debug, Clone, Default)]
pub(super) struct TokenDirectory {
    /// Names from the root down.
    pub(super) names: Vec<Vec<u8>>,
    /// As the file of tokens has it.
    pub(super) shown: String,
    /// Its line in that file.
    pub(super) line: usize,
    /// The token's name.
    pub(super) token: Arc<str>,
}

/// Looks for the tokens' directories, on all file systems at once; returns those whose file system
/// does not answer. Their tokens may be used: only requests below such a directory depend on it.
///
/// # Errors
/// Why the first directory, in the file's order, that its file system reports as unusable cannot be
/// used.
pub(super) async fn check(
    files: &Arc<StaticFiles>,
    directories: &[TokenDirectory],
) -> Result<Vec<TokenDirectory>, String> {
    let mut looks = JoinSet::new();
    for (at, directory) in directories.iter().enumerate() {
        if !directories[..at].iter().any(|other| other.names == directory.names) {
            let look = look(Arc::clone(files), directory.names.clone());
            looks.spawn(async move { (at, timeout(ANSWER_TIMEOUT, look).await) });
        }
    }
    let mut looked: Vec<_> = looks.join_all().await;
    looked.sort_by_key(|(at, _)| *at);
    let mut hung = Vec::new();
    for (at, found) in looked {
        match found {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => return Err(unusable(&directories[at], &error)),
            Ok(Err(_)) | Err(_) => hung.push(directories[at].clone()),
        }
    }
    Ok(hung)
}

/// Warns of the directories whose file system does not answer.
pub(super) fn warn(hung: &[TokenDirectory]) {
    for TokenDirectory { shown, token, .. } in hung {
        tracing::warn!(
            directory = shown,
            token = &**token,
            "the file system of a token's directory does not answer: the token is in force, but requests there will wait"
        );
    }
}

async fn look(files: Arc<StaticFiles>, names: Vec<Vec<u8>>) -> Result<io::Result<()>, DiskError> {
    let disk = files.disk_of(&names).await?;
    disk.run(move || files.root.directory(&names).map(drop)).await
}

fn unusable(directory: &TokenDirectory, error: &io::Error) -> String {
    let TokenDirectory { shown, line, token, .. } = directory;
    format!(
        "line {line}: the directory {shown} of token '{token}' cannot be used: {error}; make it below the served one"
    )
}
