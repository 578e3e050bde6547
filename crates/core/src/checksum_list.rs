//! Checksum lists, as published with software: the formats of sha256sum(1), BSD and openssl.

use thiserror::Error;

use crate::checksum::{Algorithm, Checksum};

/// The checksums of a list with the paths of their files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChecksumList {
    entries: Vec<Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    /// The path of the file, without a leading `./`.
    path: String,
    /// One of these is the file's, the likeliest first: a line may state no algorithm.
    checksums: Vec<Checksum>,
}

/// The reason why a list has no checksum for a file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChecksumListError {
    /// No line is a checksum.
    #[error("no line of it is a checksum: write 'HEX  NAME' as sha256sum does, or 'SHA256 (NAME) = HEX'")]
    Empty,
    /// No line has this name.
    #[error("no line has the name {0}")]
    Missing(String),
    /// Lines with this name have different checksums.
    #[error("two lines with the name {0} have different checksums")]
    Ambiguous(String),
}

impl ChecksumList {
    /// Parses the lines of BSD (`SHA256 (NAME) = HEX`) and of coreutils (`HEX  NAME`, `HEX *NAME`,
    /// after `\` if the name is escaped). The number of digits selects MD5, SHA-1, or SHA-224 to
    /// SHA-512; BLAKE3 and BLAKE2b of 128 to 512 bits have the length of one of them. The name of
    /// the list's `file`, as `B3SUMS`, selects the likeliest. Other lines, such as a signature, are
    /// ignored.
    ///
    /// # Errors
    /// [`ChecksumListError::Empty`] if no line is a checksum.
    pub fn parse(text: &[u8], file: &str) -> Result<Self, ChecksumListError> {
        let text = String::from_utf8_lossy(text);
        let file = file.to_ascii_lowercase();
        let is_of = |names: [&str; 2], suffix: &str| {
            names.iter().any(|name| file.contains(name)) || file.ends_with(suffix)
        };
        let (is_blake2, is_blake3) = (is_of(["b2sum", "blake2"], ".b2"), is_of(["b3sum", "blake3"], ".b3"));
        let is_likely = |algorithm: Algorithm| {
            (is_blake2 && algorithm.is_blake2()) || (is_blake3 && algorithm == Algorithm::Blake3)
        };
        let lines = text.trim_start_matches('\u{feff}').lines();
        let entries: Vec<_> = lines.filter_map(|line| entry(line, is_likely)).collect();
        if entries.is_empty() { Err(ChecksumListError::Empty) } else { Ok(Self { entries }) }
    }

    /// Finds the checksums, of which one is that of the file at `path`, by its last path component;
    /// the likeliest is the first. Of several lines with that name, those with the longest common
    /// end of the path count.
    ///
    /// # Errors
    /// [`ChecksumListError::Missing`] and [`ChecksumListError::Ambiguous`].
    pub fn find(&self, path: &str) -> Result<Vec<Checksum>, ChecksumListError> {
        let name = path.rsplit('/').next().unwrap_or_default();
        let in_common = |entry: &Entry| {
            let pairs = entry.path.rsplit('/').zip(path.rsplit('/'));
            pairs.take_while(|(theirs, ours)| theirs == ours).count()
        };
        let most = self.entries.iter().map(in_common).max().unwrap_or_default();
        if most == 0 {
            return Err(ChecksumListError::Missing(name.to_owned()));
        }
        let found: Vec<_> = self.entries.iter().filter(|entry| in_common(entry) == most).collect();
        let algorithm = |entry: &Entry| entry.checksums.first().map(|checksum| checksum.algorithm);
        let best = found.iter().map(|entry| algorithm(entry)).max().flatten();
        let mut best = found.iter().filter(|entry| algorithm(entry) == best);
        match best.next() {
            Some(first) if best.all(|other| other.checksums.first() == first.checksums.first()) => {
                Ok(first.checksums.clone())
            }
            _ => Err(ChecksumListError::Ambiguous(name.to_owned())),
        }
    }
}

fn entry(line: &str, is_likely: impl Fn(Algorithm) -> bool) -> Option<Entry> {
    let line = line.trim_end_matches('\r');
    let (line, is_escaped) = line.strip_prefix('\\').map_or((line, false), |rest| (rest, true));
    let tagged = tagged(line).map(|(path, checksum)| (path, vec![checksum]));
    let (path, checksums) = tagged.or_else(|| untagged(line, is_likely))?;
    let path = if is_escaped { unescape(path) } else { path.to_owned() };
    let path = path.trim_start_matches("./").to_owned();
    (!path.is_empty()).then_some(Entry { path, checksums })
}

/// Reads `SHA256 (NAME) = HEX`, and `SHA2-256(NAME)= HEX` as openssl writes it.
fn tagged(line: &str) -> Option<(&str, Checksum)> {
    let (algorithm, rest) = line.split_once('(')?;
    let (path, hex) = rest.rsplit_once(')')?;
    let hex = hex.trim_start().strip_prefix('=')?.trim();
    let name = algorithm.trim().to_ascii_lowercase().replace("sha2-", "sha");
    Some((path, Checksum::from_hex(Algorithm::named(&name)?, hex)?))
}

/// Reads `HEX  NAME`, `HEX *NAME` and `HEX NAME`; of the algorithms of that length the likely ones
/// come first.
fn untagged(line: &str, is_likely: impl Fn(Algorithm) -> bool) -> Option<(&str, Vec<Checksum>)> {
    let (hex, rest) = line.split_once([' ', '\t'])?;
    let mut algorithms = match hex.len() {
        32 => vec![Algorithm::Md5, Algorithm::Blake2b128],
        40 => vec![Algorithm::Sha1, Algorithm::Blake2b160],
        56 => vec![Algorithm::Sha224],
        64 => vec![Algorithm::Sha256, Algorithm::Blake3, Algorithm::Blake2b256],
        96 => vec![Algorithm::Sha384, Algorithm::Blake2b384],
        128 => vec![Algorithm::Sha512, Algorithm::Blake2b],
        _ => return None,
    };
    algorithms.sort_by_key(|algorithm| !is_likely(*algorithm));
    let path = rest.strip_prefix([' ', '*']).unwrap_or(rest);
    let checksums = algorithms.into_iter().map(|algorithm| Checksum::from_hex(algorithm, hex));
    Some((path, checksums.collect::<Option<_>>()?))
}

/// Replaces the escape sequences of coreutils.
fn unescape(path: &str) -> String {
    let mut plain = String::new();
    let mut characters = path.chars();
    while let Some(character) = characters.next() {
        match (character, characters.clone().next()) {
            ('\\', Some(escaped @ ('n' | 'r' | '\\'))) => {
                plain.push(match escaped {
                    'n' => '\n',
                    'r' => '\r',
                    other => other,
                });
                characters.next();
            }
            _ => plain.push(character),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hex(length: usize, digit: &str) -> String {
        digit.repeat(length)
    }

    fn find(list: &str, path: &str) -> Result<String, ChecksumListError> {
        ChecksumList::parse(list.as_bytes(), "SHA256SUMS")?.find(path).map(|found| found[0].to_string())
    }

    /// The lines of b2sum and b3sum state no algorithm, and have as many digits as others.
    #[test]
    fn line_without_an_algorithm_has_those_of_its_length() {
        let (three, two, tagged) = (hex(64, "a"), hex(128, "b"), hex(64, "c"));
        let list = format!("{three}  three\n{two}  two\nBLAKE2b-256 (tagged) = {tagged}\n");
        for (file, three, two) in [
            ("SUMS", "sha256 blake3 blake2b-256", "sha512 blake2b"),
            ("dir/B3SUMS.txt", "blake3 sha256 blake2b-256", "sha512 blake2b"),
            ("f.iso.b2", "blake2b-256 sha256 blake3", "blake2b sha512"),
        ] {
            let list = ChecksumList::parse(list.as_bytes(), file).unwrap();
            let found = |path: &str| {
                let found = list.find(path).unwrap();
                found.iter().map(|sum| sum.algorithm.to_string()).collect::<Vec<_>>().join(" ")
            };
            assert_eq!(
                [found("three"), found("two"), found("tagged")],
                [three, two, "blake2b-256"],
                "{file}"
            );
        }
    }

    #[test]
    fn lines_of_all_forms_are_parsed_and_the_matching_directory_preferred() {
        let (sha256, sha512) = (hex(64, "a"), hex(128, "B"));
        let list = format!(
            "-----BEGIN PGP SIGNED MESSAGE-----\r\n\r\n{sha256}  text.iso\r\n{sha256} *binary.iso\n{} short\n\
             SHA512 (with (brackets).iso) = {sha512}\nSHA2-256(openssl.iso)= {sha256}\nBLAKE3 (b3) = {sha256}\n\
             \\{sha256}  new\\nline\\\\\nRMD160 (x) = {}\n{}  one space.txt\n",
            hex(32, "1"),
            hex(40, "2"),
            hex(40, "3"),
        );
        for (path, checksum) in [
            ("text.iso", format!("sha256:{sha256}")),
            ("binary.iso", format!("sha256:{sha256}")),
            ("short", format!("md5:{}", hex(32, "1"))),
            ("with (brackets).iso", format!("sha512:{}", hex(128, "b"))),
            ("openssl.iso", format!("sha256:{sha256}")),
            ("b3", format!("blake3:{sha256}")),
            ("new\nline\\", format!("sha256:{sha256}")),
            ("one space.txt", format!("sha1:{}", hex(40, "3"))),
        ] {
            assert_eq!(find(&list, path), Ok(checksum), "{path}");
        }
        assert_eq!(find(&list, "x"), Err(ChecksumListError::Missing("x".into())));
        for none in ["", "\n", "<html>404</html>", "abc  name", &sha256, &format!("{sha256}  ")] {
            assert_eq!(find(none, "name"), Err(ChecksumListError::Empty), "{none}");
        }
        // The line with the matching directory is preferred.
        let (a, b) = (hex(64, "a"), hex(64, "b"));
        let list = format!("{a}  ./amd64/image\n{b}  ./arm64/image\n{a}  ./twice\n{a}  twice\n");
        assert_eq!(find(&list, "pub/arm64/image"), Ok(format!("sha256:{b}")));
        assert_eq!(find(&list, "image"), Err(ChecksumListError::Ambiguous("image".into())));
        assert_eq!(find(&list, "twice"), Ok(format!("sha256:{a}")));
        let both = format!("{}  f\n{}  f\n", hex(32, "1"), hex(128, "2"));
        assert_eq!(find(&both, "f"), Ok(format!("sha512:{}", hex(128, "2"))), "the stronger one");
    }

    proptest! {
        #[test]
        fn every_file_name_is_found(name in "[^/\r\n\u{85}\u{2028}\u{2029}\u{b}\u{c}]{1,20}") {
            prop_assume!(!name.starts_with("./") && !matches!(name.as_str(), "."));
            let list = format!("{}  {}\n", hex(64, "c"), name);
            prop_assert!(find(&list, &name).is_ok());
        }
    }
}
