//! The facts of files: MLST and MLSD (RFC 3659, section 7), SIZE, MDTM.

use std::time::SystemTime;

use super::{Reply, parse_date};
use crate::proto::listing::check_name;
use crate::proto::{Malformed, number};
use crate::units::Bytes;

/// The kind of a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FileKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// The listed directory itself, or its parent.
    ListedOrParent,
    /// A symbolic link with an unknown target.
    Link,
    /// A device, a socket or the like, or an unknown kind.
    #[default]
    Other,
}

/// The supported facts of a file; other facts are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts {
    /// The kind of the entry.
    pub kind: FileKind,
    /// The length of a file; meaningless for a directory.
    pub size: Option<Bytes>,
    /// The time of the last modification.
    pub modify: Option<SystemTime>,
    /// Whether the entry is a symbolic link; `kind` and `size` are then those of the target with
    /// Globus, but not with other servers.
    pub link: bool,
    /// A hash of the fact "unique", equal only for one file or directory. Detects loops of links.
    pub unique: Option<u64>,
}

/// Returns the name of a directory entry if it is that of an entry: without line breaks, and as
/// [`check_name`] requires.
pub(super) fn entry_name(name: &[u8]) -> Result<Vec<u8>, Malformed> {
    if check_name(name).is_ok() && !name.iter().any(|b| matches!(b, b'\r' | b'\n')) {
        return Ok(name.to_vec());
    }
    let why = format!("the server listed the name '{}', which is not a plain file name", shown(name));
    Err(Malformed::new(why))
}

/// Formats up to 200 characters for a message, without control characters.
pub(super) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().take(200).map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Parses the reply 250 to MLST.
///
/// # Errors
/// [`Malformed`] for any other reply, and for contradictory facts.
pub fn parse_mlst(reply: &Reply) -> Result<Facts, Malformed> {
    let no_facts = || Malformed::new(format!("the server listed no facts: {reply}"));
    // The first and the last line are free text; a line of facts begins with a space.
    let last = reply.lines.len().saturating_sub(1);
    let lines = reply.lines.get(1..last).filter(|_| reply.code == 250).unwrap_or_default();
    let line = lines.iter().map(|line| line.trim_start_matches(' ')).find(|line| line.contains('='));
    Ok(split_line(line.ok_or_else(no_facts)?.as_bytes())?.0)
}

/// Parses the reply 213 to SIZE; `None` for any other reply.
pub fn parse_size(reply: &Reply) -> Option<Bytes> {
    (reply.code == 213).then(|| number(reply.last_line().trim())).flatten().map(Bytes::new)
}

/// Parses the reply 213 to MDTM; `None` for any other reply.
pub fn parse_mdtm(reply: &Reply) -> Option<SystemTime> {
    (reply.code == 213).then(|| parse_date(reply.last_line().trim())).flatten()
}

/// Splits a line of MLST or MLSD into its facts and the bytes of the name. A fact with an invalid
/// value is left out.
pub(super) fn split_line(line: &[u8]) -> Result<(Facts, &[u8]), Malformed> {
    let malformed = || without_facts(line);
    // Facts contain no space (RFC 3659, section 7.2), so the first space ends them.
    let blank = line.iter().position(|b| *b == b' ').ok_or_else(malformed)?;
    let (facts, name) = (&line[..blank], &line[blank + 1..]);
    let mut read = Facts::default();
    let mut has = [false; 4];
    if !facts.is_empty() && !facts.contains(&b'=') {
        return Err(malformed());
    }
    for fact in facts.split(|b| *b == b';') {
        let Some(at) = fact.iter().position(|b| *b == b'=') else { continue };
        let (keyword, value) = (fact[..at].to_ascii_lowercase(), &fact[at + 1..]);
        let text = || std::str::from_utf8(value).ok();
        let index = match keyword.as_slice() {
            b"type" => {
                read.kind = kind(value);
                0
            }
            b"size" => {
                read.size = text().and_then(number).map(Bytes::new);
                1
            }
            b"modify" => {
                read.modify = text().and_then(parse_date);
                2
            }
            b"unique" => {
                read.unique = Some(hash(value));
                3
            }
            b"unix.slink" => {
                read.link = true;
                continue;
            }
            _ => continue,
        };
        if std::mem::replace(&mut has[index], true) {
            let fact = shown(fact);
            return Err(Malformed::new(format!(
                "the server listed the fact '{fact}', which contradicts another"
            )));
        }
    }
    read.link |= read.kind == FileKind::Link;
    Ok((read, name))
}

/// Creates the error of a line that is not of the form `fact=value;… name`.
pub(super) fn without_facts(line: &[u8]) -> Malformed {
    Malformed::new(format!("the server listed '{}', which has no facts before a name", shown(line)))
}

fn kind(value: &[u8]) -> FileKind {
    let value = value.to_ascii_lowercase();
    match value.as_slice() {
        b"file" => FileKind::File,
        b"dir" => FileKind::Directory,
        b"cdir" | b"pdir" => FileKind::ListedOrParent,
        // Both forms are in use: slink:TARGET is from draft-ietf-ftpext-mlst-11, symlink is that of
        // proftpd.
        link if link.starts_with(b"os.unix=slink") || link.starts_with(b"os.unix=symlink") => FileKind::Link,
        _ => FileKind::Other,
    }
}

/// Hashes with FNV-1a of 64 bits: <http://www.isthe.com/chongo/tech/comp/fnv/>.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const GLOBUS: &str = " Type=file;Modify=20261123213300;Size=3000000;Perm=r;UNIX.mode=0644;UNIX.owner=root;\
        Unique=fe00-9840dd;UNIX.slink=/d/f; /d/a link";

    fn mlst(line: &str) -> Result<Facts, Malformed> {
        parse_mlst(&Reply::of(250, &["status of x", line, "End."]))
    }

    #[test]
    fn facts_are_parsed_in_any_case_and_order() {
        let facts = mlst(GLOBUS).unwrap();
        let modify = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_469_580);
        assert_eq!((facts.kind, facts.size), (FileKind::File, Some(Bytes::new(3_000_000))));
        assert!(facts.modify == Some(modify) && facts.link && facts.unique.is_some());
        for (line, kind) in [
            (" type=dir;unique=a; /", FileKind::Directory),
            ("TYPE=OS.unix=slink:/etc; x", FileKind::Link),
            (" type=OS.unix=chr; x", FileKind::Other),
        ] {
            assert_eq!(mlst(line).unwrap().kind, kind, "{line}");
        }
        assert!(mlst("type=OS.unix=symlink; x").unwrap().link);
        let (one, other) = (mlst("unique=1; a").unwrap().unique, mlst("unique=2; a").unwrap().unique);
        assert!(one != other && one == mlst("unique=1; b").unwrap().unique);
    }

    #[test]
    fn contradictory_facts_are_refused_and_invalid_ones_left_out() {
        for line in ["size=1;size=2; a", "size=x;size=2; a", "type=file;type=dir; a"] {
            assert!(mlst(line).is_err_and(|error| error.to_string().contains("contradicts")), "{line}");
        }
        assert!(mlst("size=1;").is_err());
        let date = parse_date("20260101000000");
        for invalid in ["size=-1", "size=", "size=99999999999999999999", "x", ""] {
            let facts = mlst(&format!("type=file;{invalid};modify=20260101000000; a")).unwrap();
            assert_eq!((facts.kind, facts.size, facts.modify), (FileKind::File, None, date), "{invalid}");
        }
        let facts = mlst("type=file;modify=2026;size=7; a").unwrap();
        assert_eq!((facts.size, facts.modify), (Some(Bytes::new(7)), None));
        let cases = [(250, &["x", "", "y"][..]), (250, &["size=1; a"]), (550, &["x", " size=1; a", "y"])];
        for (code, lines) in cases {
            let reply = Reply::of(code, lines);
            assert!(
                parse_mlst(&reply).is_err_and(|error| error.to_string().contains("no facts")),
                "{reply:?}"
            );
        }
    }

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        for name in ["", ".", "..", "../x", "a/b", "/etc", "a\rb", "a\nb", "a\0b", &"x".repeat(256)] {
            assert!(entry_name(name.as_bytes()).is_err(), "{name}");
        }
        for name in ["...", ".hidden", "a b", " ", "\\", "-rf", &"x".repeat(255)] {
            assert_eq!(entry_name(name.as_bytes()).unwrap(), name.as_bytes());
        }
    }

    #[test]
    fn size_and_date_replies_are_parsed() {
        let reply = |code, text| Reply::of(code, &[text]);
        assert_eq!(parse_size(&reply(213, "3000000")), Some(Bytes::new(3_000_000)));
        for text in ["", "-1", "+1", "1 2", "x"] {
            assert_eq!(parse_size(&reply(213, text)), None, "{text}");
        }
        assert_eq!(parse_size(&reply(550, "1")), None);
        assert!(parse_mdtm(&reply(213, "20261123213300")).is_some());
        assert_eq!(parse_mdtm(&reply(213, "yesterday")), None);
    }
}
