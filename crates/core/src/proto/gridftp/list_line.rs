//! Lines of LIST. RFC 959 does not specify their form; servers use that of `ls -l`, of DOS, of
//! NetWare, or EPLF (cr.yp.to/ftp/list/eplf.html).
//!
//! ```text
//!   drwxr-xr-x   2 owner group    4096 Jan  1 12:00 name        -rw-r--r-- 1 owner 4096 2026-01-31 12:00 name
//!   01-31-26  12:00PM       <DIR>          name                 01-31-2026  12:00PM            4,096 name
//!   d [R----F--] owner             512 Jan 16 18:53    name     +i8388621.48594,m825718503,r,s4096,<tab>name
//! ```

use super::facts::{entry_name, shown};
use super::{Facts, FileKind, ListingEntry};
use crate::proto::{Malformed, number};
use crate::units::Bytes;

/// The columns of a line that are used. Times are not: they lack a zone, and seconds or the year.
struct Columns<'a> {
    kind: FileKind,
    /// The size of a file; `None` if it is negative, as of a server with numbers of 32 bits.
    size: Option<u64>,
    name: &'a [u8],
}

/// Parses a line; `None` if it is empty, a sum (`total 7`), the directory itself or its parent.
pub(super) fn parse_list_line(line: &[u8]) -> Result<Option<ListingEntry>, Malformed> {
    let columns = unix(line).or_else(|| netware(line)).or_else(|| dos(line)).or_else(|| eplf(line));
    let Some(Columns { kind, size, name }) = columns else {
        let unknown =
            || format!("the server listed '{}', which is no line of a known form of LIST", shown(line));
        return if is_sum(line) { Ok(None) } else { Err(Malformed::new(unknown())) };
    };
    if matches!(name, b"." | b"..") {
        return Ok(None);
    }
    let size = size.filter(|_| kind == FileKind::File).map(Bytes::new);
    let facts = Facts { kind, size, link: kind == FileKind::Link, ..Facts::default() };
    Ok(Some(ListingEntry { name: entry_name(name)?, facts }))
}

/// Returns whether a line is blank, or a word and a number.
fn is_sum(line: &[u8]) -> bool {
    let Some((title, rest)) = word(line) else { return true };
    let sum = word(rest).filter(|(_, rest)| word(rest).is_none());
    is_text(title) && sum.is_some_and(|(sum, _)| number_of(sum).is_some())
}

/// Parses a line of `ls -l`: the mode, some of links, owner and group, the size, the date, and
/// after one blank the name.
fn unix(line: &[u8]) -> Option<Columns<'_>> {
    let (mode, rest) = word(line)?;
    let kind = match mode.first()? {
        b'-' => FileKind::File,
        b'd' => FileKind::Directory,
        b'l' => FileKind::Link,
        b'b' | b'c' | b'p' | b's' | b'D' => FileKind::Other,
        _ => return None,
    };
    // A mark of access rules (+, @ or a dot) may follow.
    if !mode.get(1..10)?.iter().all(|b| b"rwxsStTlL-".contains(b)) {
        return None;
    }
    from_size(kind, rest)
}

/// Parses a line of NetWare: `d` or `-`, the rights in brackets, the owner, the size, the date, and
/// the aligned name.
fn netware(line: &[u8]) -> Option<Columns<'_>> {
    let kind = match line.first()? {
        b'-' => FileKind::File,
        b'd' => FileKind::Directory,
        _ => return None,
    };
    let (rights, rest) = word(&line[1..])?;
    let rights = rights.strip_prefix(b"[")?.strip_suffix(b"]")?;
    if !rights.iter().all(|b| b.is_ascii_uppercase() || *b == b'-') {
        return None;
    }
    let columns = from_size(kind, rest)?;
    Some(Columns { name: columns.name.trim_ascii_start(), ..columns })
}

/// Parses the size, the date, and after one blank the name, which may have columns before them.
fn from_size(kind: FileKind, mut rest: &[u8]) -> Option<Columns<'_>> {
    while let Some((size, after)) = word(rest) {
        if is_number(size.strip_prefix(b"-").unwrap_or(size))
            && let Some(name) = after_date(after)
        {
            let name = if kind == FileKind::Link { before(name, b" -> ") } else { name };
            return Some(Columns { kind, size: number_of(size), name });
        }
        rest = after;
    }
    None
}

/// Parses a line of DOS: the date, the time, the size or a mark, and the name.
fn dos(line: &[u8]) -> Option<Columns<'_>> {
    let (date, rest) = word(line)?;
    let (time, rest) = word(rest)?;
    if !is_date(date) || !is_time(time) {
        return None;
    }
    let (size, rest) = word(rest)?;
    // The names of marked entries are aligned.
    let aligned = rest.trim_ascii_start();
    let (kind, name) = match size {
        _ if size.eq_ignore_ascii_case(b"<DIR>") => (FileKind::Directory, aligned),
        [b'<', .., b'>'] => (FileKind::Link, before(aligned, b" [")),
        _ if is_grouped(size) => (FileKind::File, rest.strip_prefix(b" ")?),
        _ => return None,
    };
    let digits: Vec<_> = size.iter().copied().filter(u8::is_ascii_digit).collect();
    Some(Columns { kind, size: number_of(&digits), name })
}

/// Parses a line of EPLF: facts that each end with a comma, and after a tab the name.
fn eplf(line: &[u8]) -> Option<Columns<'_>> {
    let tab = line.iter().position(|b| *b == b'\t')?;
    let facts: Vec<_> = line[..tab].strip_prefix(b"+")?.split(|b| *b == b',').collect();
    let kind = match (facts.contains(&&b"/"[..]), facts.contains(&&b"r"[..])) {
        (true, _) => FileKind::Directory,
        (_, true) => FileKind::File,
        _ => FileKind::Other,
    };
    let size = facts.iter().find_map(|fact| number_of(fact.strip_prefix(b"s")?));
    Some(Columns { kind, size, name: &line[tab + 1..] })
}

/// Returns the name after a date and a blank: `Jan 31 12:00`, `Jan 31 2026`, `31 Jan 2026` or
/// `2026-01-31 12:00`.
fn after_date(text: &[u8]) -> Option<&[u8]> {
    let (first, rest) = word(text)?;
    let (second, rest) = word(rest)?;
    let rest = if is_date(first) && is_time(second) {
        rest
    } else {
        let is_day = |word: &[u8]| number_of(word).is_some_and(|day| (1..=31).contains(&day));
        let is_day_of_month = is_text(first) && is_day(second) || is_day(first) && is_text(second);
        let (last, rest) = word(rest)?;
        let is_year = last.len() == 4 && is_number(last);
        (is_day_of_month && (is_year || is_time(last))).then_some(rest)?
    };
    rest.strip_prefix(b" ")
}

/// Splits off the first word; returns it, and the text after it.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// Returns the text before `mark`, or all of it.
fn before<'a>(text: &'a [u8], mark: &[u8]) -> &'a [u8] {
    text.windows(mark.len()).position(|part| part == mark).map_or(text, |at| &text[..at])
}

/// Returns whether a word has no digits, as the name of a month in any language.
fn is_text(word: &[u8]) -> bool {
    !word.iter().any(u8::is_ascii_digit)
}

fn is_number(word: &[u8]) -> bool {
    !word.is_empty() && word.iter().all(u8::is_ascii_digit)
}

/// Returns whether a word is a number, possibly with a comma before each three digits.
fn is_grouped(word: &[u8]) -> bool {
    let groups: Vec<_> = word.split(|b| *b == b',').collect();
    groups.iter().all(|group| is_number(group)) && groups[1..].iter().all(|group| group.len() == 3)
}

fn number_of(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok().and_then(number)
}

/// Returns whether a word is a date of three numbers.
fn is_date(word: &[u8]) -> bool {
    let parts: Vec<_> = word.split(|b| matches!(b, b'-' | b'/' | b'.')).collect();
    parts.len() == 3 && parts.iter().all(|part| is_number(part) && part.len() <= 4)
}

/// Returns whether a word is a time, with or without seconds, AM and PM.
fn is_time(word: &[u8]) -> bool {
    let half = |end: &[u8]| end.eq_ignore_ascii_case(b"AM") || end.eq_ignore_ascii_case(b"PM");
    let digits = match word.split_last_chunk::<2>() {
        Some((digits, end)) if half(end) => digits,
        _ => word,
    };
    let parts: Vec<_> = digits.split(|b| *b == b':').collect();
    matches!(parts.len(), 2 | 3) && parts.iter().all(|part| is_number(part) && part.len() <= 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_all_forms_are_parsed() {
        use FileKind::{Directory, File, Link, Other};
        for (line, kind, size, name) in [
            ("drwxr-xr-x   2 owner group    4096 Jan  1 12:00 sub", Directory, None, "sub"),
            ("-rw-r--r--    1 ftp      ftp        600000 Nov 13  2014 f.bin", File, Some(600_000), "f.bin"),
            ("-rw-r--r-- 1 0 0 7 Feb 29 23:59  two  blanks ", File, Some(7), " two  blanks "),
            ("-rw-r--r-- 1 domain users Power Users 7 Jan 1 2020 f", File, Some(7), "f"),
            ("-rw-rw-rw- owner 7 Jan 1 2020 f", File, Some(7), "f"),
            ("-rwsr-sr-t+ 1 a b 0 Dec 31 1999 2020 Jan 1 1999 x", File, Some(0), "2020 Jan 1 1999 x"),
            ("-rw-r--r--. 1 a b 5 31 Dez 2020 f", File, Some(5), "f"),
            ("-rw-r--r-- 1 a b 5 m\u{e4}rz 1 09:05 f", File, Some(5), "f"),
            ("-rw-r--r-- 1 a b 5 2026-01-31 12:00 f", File, Some(5), "f"),
            ("-rw-r--r-- 1 a b -2147483648 Jan 1 2020 large", File, None, "large"),
            ("-rw-r--r-- 1 a b 99999999999999999999 Jan 1 2020 huge", File, None, "huge"),
            ("-rw-r--r-- 1 a b 5 Jan 1 2020 a -> b", File, Some(5), "a -> b"),
            ("lrwxrwxrwx 1 a b 5 Jan 1 2020 latest -> v1/x -> y", Link, None, "latest"),
            ("crw-r--r-- 1 root root 1, 3 Jan 1 2020 null", Other, None, "null"),
            ("01-31-26  12:00PM       <DIR>          sub dir", Directory, None, "sub dir"),
            ("01-31-2026  03:19am             1973 read me.txt", File, Some(1973), "read me.txt"),
            ("2026/01/31  15:04    <dir>    s", Directory, None, "s"),
            ("01-31-26  12:00PM <JUNCTION>     link [C:\\x]", Link, None, "link"),
            ("04-27-00  09:09PM        1,234,567 f", File, Some(1_234_567), "f"),
            ("d [R----F--] supervisor     512       Jan 16 18:53    login", Directory, None, "login"),
            (
                "-[RWCEAFMS] rhesus       214059       Oct 20 15:27    cx 1.exe",
                File,
                Some(214_059),
                "cx 1.exe",
            ),
            ("+i8388621.48594,m825718503,r,s280,\tf 1", File, Some(280), "f 1"),
            ("+i8388621.50690,m824255907,/,\tsub", Directory, None, "sub"),
            ("+/,\t5", Directory, None, "5"),
            ("+m1,\tx", Other, None, "x"),
        ] {
            let ListingEntry { name: found, facts } = parse_list_line(line.as_bytes()).unwrap().unwrap();
            assert_eq!((facts.kind, facts.size), (kind, size.map(Bytes::new)), "{line}");
            assert_eq!(found, name.as_bytes(), "{line}");
        }
    }

    #[test]
    fn lines_without_an_entry_are_skipped_and_others_refused() {
        for line in
            "||total 12|insgesamt 0|drwxr-xr-x 2 a b 4 Jan 1 12:00 .|01-31-26 12:00PM <DIR> ..".split('|')
        {
            assert_eq!(parse_list_line(line.as_bytes()), Ok(None), "{line}");
        }
        for line in "name|total|total 1 2|-rw-r--r-- 1 a b 5 Jan 1 2020|-rw-r--r-- 1 a b 5 Jan 32 2020 f|\
            xrw-r--r-- 1 a b 5 Jan 1 2020 f|-rw-r--r 1 a b 5 Jan 1 2020 f|-rw-r--r-- 1 a b 5 2020 f|\
            01-31-26  12:00PM f|01-31-26 <DIR> f|01-31  12:00PM 5 f|01-31-26  12:00PM 5x f|\
            01-31-26  12:00PM 1,23 f|01-31-26  12:00PM ,123 f|+r,s280, f|- [r----f--] a 5 Jan 1 2020 f"
            .split('|')
        {
            let error = parse_list_line(line.as_bytes()).unwrap_err();
            assert!(error.to_string().contains("known form"), "{error}");
        }
        for name in ["../x", "/etc/x", "a/b", ""] {
            for start in ["-rw-r--r-- 1 a b 5 Jan 1 2020 ", "01-31-26  12:00PM 5 ", "+r,\t"] {
                assert!(parse_list_line(format!("{start}{name}").as_bytes()).is_err(), "{start}{name}");
            }
        }
    }
}
