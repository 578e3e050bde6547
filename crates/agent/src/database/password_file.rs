//! Passwords in the password file of PostgreSQL's programs, `~/.pgpass` (PostgreSQL 17, section
//! 32.16).

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The environment variable with another path of the file.
const PATH_VARIABLE: &str = "PGPASSFILE";
/// The maximum size of the file in bytes.
const MAX_FILE: u64 = 1 << 20;
/// The directories of sockets for which a line may name `localhost`.
const DEFAULT_SOCKETS: [&str; 3] = ["/run/postgresql", "/var/run/postgresql", "/tmp"];

/// Returns the user's password for a server. `host` is a name or the directory of a socket.
pub(super) fn password_of(host: &str, port: u16, database: &str, user: &str) -> Option<String> {
    let path = match std::env::var_os(PATH_VARIABLE) {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".pgpass"),
    };
    let text = read(&path)?;
    let port = port.to_string();
    let find = |host| password_in(&text, [host, &port, database, user]);
    find(host).or_else(|| DEFAULT_SOCKETS.contains(&host).then(|| find("localhost"))?)
}

/// Reads the file, unless other users may read it too, as psql does.
fn read(path: &Path) -> Option<String> {
    let meta = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    if meta.permissions().mode() & 0o077 != 0 {
        tracing::warn!("{} is not used, because others may read it: chmod 0600", path.display());
        return None;
    }
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_FILE).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns the password in the first line whose host, port, database and user match.
fn password_in(text: &str, wanted: [&str; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut fields = fields(line).into_iter();
        let matches = wanted.iter().all(|wanted| {
            let field = fields.next();
            field.as_deref() == Some("*") || field.as_deref() == Some(wanted)
        });
        fields.next().filter(|_| matches)
    })
}

/// Splits a line at its colons; a backslash escapes a colon or a backslash.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut rest = line.chars();
    while let Some(next) = rest.next() {
        match (next, fields.last_mut()) {
            (':', _) => fields.push(String::new()),
            ('\\', Some(field)) => field.extend(rest.next()),
            (_, Some(field)) => field.push(next),
            (_, None) => {}
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_matching_line_holds_the_password() {
        let text = "# db:5432:farm:ann:comment\ndb:5432:farm:ann:a\\:b\\\\c\ndb:*:*:bob:bob's\nshort:1\n*:*:*:ann:any\n";
        for (wanted, password) in [
            (["db", "5432", "farm", "ann"], Some("a:b\\c")),
            (["db", "5433", "farm", "ann"], Some("any")),
            (["db", "9", "other", "bob"], Some("bob's")),
            (["other", "5432", "farm", "bob"], None),
        ] {
            assert_eq!(password_in(text, wanted).as_deref(), password, "{wanted:?}");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(".pgpass");
        std::fs::write(&path, text).unwrap();
        for (mode, is_used) in [(0o644, false), (0o600, true)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&path).is_some(), is_used, "mode {mode:o}");
        }
    }
}
