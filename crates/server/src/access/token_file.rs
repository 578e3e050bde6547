//! The file of tokens: read at the start, and again when it changes.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use longhaul_core::failure::Failure;
use longhaul_core::proto::http::TargetPath;
use longhaul_core::units::Bytes;
use longhaul_engine::input_file;
use parking_lot::{Mutex, RwLock};
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use toml::Spanned;
use toml::value::Datetime;

use super::Right;
use super::token::Token;
use super::token_directory::{self, TokenDirectory};
use crate::error::no_tokens;
use crate::paths::file_state::{CHECK_INTERVAL, FileState};
use crate::reply::static_files::StaticFiles;

/// No file of tokens is larger; a device would never end.
const LARGEST: u64 = 1 << 20;

/// Permissions that let others than the owner change a file of tokens, or others than its group
/// read it.
pub const WIDE_MODE: u32 = 0o027;

/// A token, and what it permits.
#[derive(Clone)]
pub(super) struct TokenEntry {
    /// `None` for the only token of a server.
    pub(super) name: Option<Arc<str>>,
    pub(super) token: Token,
    pub(super) directory: TokenDirectory,
    rights: Vec<Right>,
    expires: Option<SystemTime>,
    /// The space that its unfinished uploads may take.
    pub(super) quota: Option<Bytes>,
}

/// The tokens that a file holds, or why it cannot be used.
type ReadTokens = Result<Vec<Arc<TokenEntry>>, String>;

/// The tokens of a file.
pub(crate) struct TokenFile {
    path: PathBuf,
    current: RwLock<Vec<Arc<TokenEntry>>>,
    seen: Mutex<SeenFile>,
}

/// The file as it was last read, whether it was usable or not.
struct SeenFile {
    state: Option<FileState>,
    /// Why it was not usable; it is read again until it is, as a directory may be made that it
    /// names.
    refused: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenFile {
    #[serde(default)]
    token: Vec<WrittenToken>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenToken {
    name: String,
    token: String,
    #[serde(default = "root")]
    directory: Spanned<String>,
    rights: Vec<Right>,
    expires: Option<Datetime>,
    quota: Option<String>,
}

fn root() -> Spanned<String> {
    Spanned::new(0..0, "/".to_owned())
}

impl TokenEntry {
    /// Makes the only token of a server.
    pub(super) fn with_all_rights(token: Token) -> Self {
        let rights = vec![Right::Read, Right::Write, Right::Delete];
        Self { name: None, token, directory: TokenDirectory::default(), rights, expires: None, quota: None }
    }

    pub(super) fn permits(&self, right: Right, path: &TargetPath) -> bool {
        self.rights.contains(&right) && path.names().starts_with(&self.directory.names)
    }

    pub(super) fn is_expired(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Makes an entry of one whose directory is named in this line of the file.
    fn parse(written: WrittenToken, line: usize) -> Result<Self, String> {
        let WrittenToken { name, token, directory, rights, expires, quota } = written;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if name.is_empty() || name.len() > 64 || !name.bytes().all(fits) {
            return Err(format!("the name '{name}' must be 1 to 64 letters, digits and -._"));
        }
        let of = |why: &dyn std::fmt::Display| format!("token '{name}': {why}");
        let shown = directory.into_inner();
        if !shown.starts_with('/') {
            return Err(of(&"its directory must begin with /, the served directory"));
        }
        let names: Vec<Vec<u8>> = shown
            .split('/')
            .filter(|name| !matches!(*name, "" | "."))
            .map(|name| name.as_bytes().to_vec())
            .collect();
        if names.iter().any(|name| name == b"..") {
            return Err(of(&"its directory must not climb with '..'"));
        }
        if rights.is_empty() {
            return Err(of(&"give it rights: read, write, delete"));
        }
        let token = Token::new(&token).map_err(|error| of(&error))?;
        let expires =
            expires.map(|at| instant(at).ok_or_else(|| of(&"expires must be as 2027-01-31T12:00:00Z")));
        let quota = quota.map(|quota| quota.parse().map_err(|error| of(&format!("its quota: {error}"))));
        let (expires, quota) = (expires.transpose()?, quota.transpose()?);
        let name: Arc<str> = name.into();
        let directory = TokenDirectory { names, shown, line, token: Arc::clone(&name) };
        Ok(Self { name: Some(name), token, directory, rights, expires, quota })
    }
}

impl TokenFile {
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let seen = SeenFile { state: FileState::at(path), refused: None };
        let current = read(path).map_err(|reason| no_tokens(path, &reason))?;
        Ok(Self { path: path.to_owned(), current: RwLock::new(current), seen: Mutex::new(seen) })
    }

    /// Checks the directories of the tokens that were read; warns of those that hang.
    pub(super) async fn check(&self, files: &Arc<StaticFiles>) -> Result<(), Failure> {
        let directories = directories(&self.current.read());
        let checked = token_directory::check(files, &directories).await;
        let hung = checked.map_err(|reason| no_tokens(&self.path, &reason))?;
        token_directory::warn(&hung);
        Ok(())
    }

    /// Returns the token with this text; looks at all tokens, so that the time does not tell which
    /// are there.
    pub(super) fn find(&self, shown: &str) -> Option<Arc<TokenEntry>> {
        let current = self.current.read();
        current
            .iter()
            .fold(None, |found, entry| if entry.token.is(shown) { Some(Arc::clone(entry)) } else { found })
    }

    /// Reads the file again each time it has changed, until the task is aborted.
    pub(crate) async fn follow(self: Arc<Self>, files: Arc<StaticFiles>) {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            self.renew(&files).await;
        }
    }

    /// Reads the file where it has changed; one that cannot be used leaves the tokens in force.
    async fn renew(self: &Arc<Self>, files: &Arc<StaticFiles>) {
        let file = Arc::clone(self);
        let Ok(Some((has_changed, fresh))) = tokio::task::spawn_blocking(move || file.read_changed()).await
        else {
            return;
        };
        let checked = match fresh {
            Ok(fresh) => token_directory::check(files, &directories(&fresh)).await.map(|hung| (fresh, hung)),
            Err(why) => Err(why),
        };
        let path = self.path.display();
        match checked {
            Ok((fresh, hung)) => {
                let count = fresh.len();
                *self.current.write() = fresh;
                self.seen.lock().refused = None;
                tracing::info!(%path, count, "the changed tokens are in force");
                token_directory::warn(&hung);
            }
            Err(why) => {
                let before = self.seen.lock().refused.replace(why.clone());
                if has_changed || before.as_ref() != Some(&why) {
                    tracing::warn!(%path, %why, "the tokens cannot be used: the old ones stay in force");
                }
            }
        }
    }

    /// Reads the file where it has changed, or was not usable; returns whether it has changed, and
    /// what it holds.
    fn read_changed(&self) -> Option<(bool, ReadTokens)> {
        let state = FileState::at(&self.path);
        let mut seen = self.seen.lock();
        let has_changed = seen.state != state;
        if !has_changed && seen.refused.is_none() {
            return None;
        }
        seen.state = state;
        drop(seen);
        Some((has_changed, read(&self.path)))
    }
}

fn directories(entries: &[Arc<TokenEntry>]) -> Vec<TokenDirectory> {
    entries.iter().map(|entry| entry.directory.clone()).collect()
}

fn read(path: &Path) -> ReadTokens {
    let file = input_file::open(path).map_err(|error| error.to_string())?;
    let found = file.metadata().map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let mode = found.mode();
    if mode & WIDE_MODE != 0 {
        return Err(format!("other users may read or change it (mode {:o}): chmod 600 it", mode & 0o777));
    }
    let mut text = String::new();
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > LARGEST {
        return Err("it is too large".to_owned());
    }
    parse(&text)
}

/// Reads the entries, not their directories.
fn parse(text: &str) -> ReadTokens {
    let line_at = |offset: usize| 1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count();
    // The error's own text would quote the line, and so a token.
    let written: WrittenFile = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_at(span.start));
        let message = if error.message().contains('`') {
            error.message()
        } else {
            "it is not TOML as in docs/uploads.md"
        };
        format!("line {line}: {message}")
    })?;
    let entry = |written: WrittenToken| {
        let line = line_at(written.directory.span().start);
        TokenEntry::parse(written, line)
    };
    let entries: Vec<TokenEntry> = written.token.into_iter().map(entry).collect::<Result<_, _>>()?;
    if entries.is_empty() {
        return Err("it holds no [[token]]".to_owned());
    }
    for (at, entry) in entries.iter().enumerate() {
        let name = entry.name.as_deref().unwrap_or_default();
        if entries[..at].iter().any(|other| other.name == entry.name) {
            return Err(format!("the name '{name}' is there twice"));
        }
        if entries[..at].iter().any(|other| other.token == entry.token) {
            return Err(format!("the token of '{name}' is there twice"));
        }
    }
    Ok(entries.into_iter().map(Arc::new).collect())
}

/// Returns the point in time of a date with time and offset.
fn instant(mut at: Datetime) -> Option<SystemTime> {
    // A leap second, which this clock does not have.
    if let Some(time) = &mut at.time {
        time.second = time.second.min(59);
    }
    let at = OffsetDateTime::parse(&at.to_string(), &Rfc3339).ok()?;
    (at >= OffsetDateTime::UNIX_EPOCH).then(|| at.into())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;

    const TWO: &str = r#"
        [[token]]
        name = "backup"
        token = "one"
        directory = "/incoming/"
        rights = ["write"]
        expires = 2027-01-01T01:00:00+01:00

        [[token]]
        name = "reader"
        token = "two"
        rights = ["read", "delete"]
    "#;

    #[test]
    fn tokens_have_directory_rights_and_expiry() {
        let entries = parse(TWO).unwrap();
        let path = |text: &str| TargetPath::parse(text).unwrap();
        let (backup, reader) = (&entries[0], &entries[1]);
        assert!(backup.permits(Right::Write, &path("/incoming/a/b")));
        for other in ["/", "/incoming2/f", "/f"] {
            assert!(!backup.permits(Right::Write, &path(other)), "{other}");
        }
        assert!(!backup.permits(Right::Read, &path("/incoming/f")));
        assert!(reader.permits(Right::Read, &path("/")) && !reader.permits(Right::Write, &path("/f")));
        let year = SystemTime::UNIX_EPOCH + Duration::from_secs(1_798_761_600);
        assert!(backup.is_expired(year) && !backup.is_expired(year - Duration::from_secs(1)));
        assert!(!reader.is_expired(year));
    }

    #[test]
    fn files_that_cannot_be_used_are_refused_without_quoting_a_token() {
        let table = |line: &str| {
            format!("[[token]]\nname = \"a\"\ntoken = \"s3cret\"\nrights = [\"read\"]\n{line}\n")
        };
        for (text, why) in [
            (String::new(), "no [[token]]"),
            ("[[token]]\nname = \"a\"\n".to_owned(), "missing field"),
            (table("").replace("s3cret\"", "s3cret"), "line 3"),
            (table("").replace("read", "all"), "all"),
            (table("").replace("\"read\"", ""), "rights"),
            (table("").replace("\"a\"", "\"a b\""), "name"),
            (table("").replace("s3cret", "two words"), "letters"),
            (table("right = 1"), "right"),
            (table("quota = \"much\""), "quota"),
            (table("expires = 2027-01-01"), "expires"),
            (table("directory = \"/a/../..\""), "climb"),
            (table("directory = \"a\""), "begin with /"),
            (TWO.replace("reader", "backup"), "twice"),
            (TWO.replace("two", "one"), "twice"),
        ] {
            let Err(found) = parse(&text) else { panic!("{text}") };
            assert!(found.contains(why) && !found.contains("s3cret"), "{text}: {found}");
        }
    }

    #[tokio::test]
    async fn changed_file_is_used_and_a_broken_or_wide_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        let write = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        };
        let served = tempfile::tempdir().unwrap();
        let files = &Arc::new(StaticFiles::of_test(served.path()));
        let open = async || {
            let file = Arc::new(TokenFile::read(&path)?);
            file.check(files).await.map(|()| file)
        };
        write(TWO, 0o600);
        let Err(missing) = open().await else { panic!() };
        let reason = ": line 5: the directory /incoming/ of token 'backup'";
        assert!(missing.to_string().contains(reason), "{missing}");
        fs::write(served.path().join("incoming"), "a file").unwrap();
        assert!(open().await.is_err());
        fs::remove_file(served.path().join("incoming")).unwrap();
        fs::create_dir(served.path().join("incoming")).unwrap();
        write(TWO, 0o604);
        assert!(open().await.is_err_and(|error| error.to_string().contains("chmod")));
        write(TWO, 0o640);
        let file = open().await.unwrap();
        let known = async |shown: &str| {
            file.renew(files).await;
            file.find(shown).is_some()
        };
        assert!(known("one").await && known("two").await && !known("three").await);
        write(&TWO.replace("two", "three"), 0o600);
        assert!(known("three").await && !known("two").await);
        write("[[token]]\nbroken", 0o600);
        assert!(known("three").await, "broken");
        write(TWO, 0o644);
        assert!(known("three").await && !known("two").await, "wide");
        write(&TWO.replace("incoming", "later"), 0o600);
        assert!(known("three").await && !known("two").await, "a directory that is not there");
        fs::create_dir(served.path().join("later")).unwrap();
        assert!(known("two").await && !known("three").await, "it is there now");
        write(&TWO.replace("two", "three"), 0o600);
        assert!(known("three").await);
        fs::remove_file(&path).unwrap();
        assert!(known("three").await, "missing");
        write(TWO, 0o600);
        assert!(known("two").await && !known("three").await);
    }
}
