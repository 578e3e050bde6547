//! Serialises the description of one file as a document (RFC 5854).

use std::fmt::Write;

use super::MetalinkFile;
use crate::checksum::Algorithm;

impl MetalinkFile {
    /// Serialises a document that describes only this file.
    pub fn to_document(&self) -> String {
        let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        text.push_str("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">\n");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "<file name=\"{}\">", escaped(&self.name.to_string()));
        if let Some(size) = self.size {
            let _ = writeln!(text, "<size>{}</size>", size.get());
        }
        for checksum in &self.checksums {
            let kind = hash_name(checksum.algorithm);
            let _ = writeln!(text, "<hash type=\"{kind}\">{}</hash>", checksum.hex());
        }
        if let Some(pieces) = &self.pieces {
            let (length, kind) = (pieces.length.get(), hash_name(pieces.algorithm));
            let _ = writeln!(text, "<pieces length=\"{length}\" type=\"{kind}\">");
            for digest in &pieces.digests {
                let _ = writeln!(text, "<hash>{}</hash>", digest.hex());
            }
            text.push_str("</pieces>\n");
        }
        for source in &self.sources {
            let location = source.location.as_ref().map(|code| format!(" location=\"{}\"", escaped(code)));
            let (location, url) = (location.unwrap_or_default(), escaped(&source.url));
            let _ = writeln!(text, "<url priority=\"{}\"{location}>{url}</url>", source.priority);
        }
        text.push_str("</file>\n</metalink>\n");
        text
    }
}

/// Returns the name of IANA's registry "Hash Function Textual Names"; BLAKE2b and BLAKE3 are not
/// registered.
fn hash_name(algorithm: Algorithm) -> String {
    algorithm.name().replace("sha", "sha-")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{LOWEST_PRIORITY, Metalink, MetalinkName, MetalinkUrl, Pieces};
    use super::*;
    use crate::checksum::Checksum;
    use crate::units::Bytes;

    proptest! {
        #[test]
        fn serialised_document_is_parsed_as_equal(
            name in "[a-z&<>\"']{1,20}",
            url in "http://h/[a-z&<>\"'?=]{0,20}",
            size in 0u64..5000,
            length in 1u64..1000,
            located: bool,
        ) {
            let Ok(name) = MetalinkName::parse(&name) else { return Ok(()) };
            let digest = |n: u64| Checksum::new(Algorithm::Blake3, &[n as u8; 32]).unwrap();
            let digests: Vec<_> = (0..size.div_ceil(length)).map(digest).collect();
            let pieces = Pieces { length: Bytes::new(length), algorithm: Algorithm::Blake3, digests };
            let file = MetalinkFile {
                name,
                size: Some(Bytes::new(size)),
                checksums: vec![digest(1), Checksum::new(Algorithm::Sha256, &[2; 32]).unwrap()],
                pieces: Some(pieces).filter(|pieces| !pieces.digests.is_empty()),
                sources: vec![MetalinkUrl {
                    url,
                    priority: LOWEST_PRIORITY,
                    location: located.then(|| "de".to_owned()),
                }],
            };
            let read = Metalink::parse(file.to_document().as_bytes()).unwrap();
            prop_assert_eq!(read, Metalink { files: vec![file] });
        }

        /// A piece with another digest is reported by its range; lists of different lengths are not
        /// compared.
        #[test]
        fn differing_pieces_are_found(size in 0u64..5000, length in 1u64..1000, wrong: Vec<u8>) {
            let count = size.div_ceil(length);
            let digest = |n: u64, wrong: bool| Checksum::new(Algorithm::Md5, &[n as u8, wrong.into()].repeat(8)).unwrap();
            let is_wrong = |n: u64| wrong.iter().any(|w| count > 0 && u64::from(*w) % count == n);
            let ours: Vec<_> = (0..count).map(|n| digest(n, false)).collect();
            let mut theirs: Vec<_> = (0..count).map(|n| digest(n, is_wrong(n))).collect();
            let pieces = Pieces { length: Bytes::new(length), algorithm: Algorithm::Md5, digests: ours };
            let found = pieces.differing(&theirs, Bytes::new(size)).unwrap();
            let expected: Vec<_> = (0..count)
                .filter(|n| is_wrong(*n))
                .map(|n| (n * length, ((n + 1) * length).min(size)))
                .collect();
            prop_assert_eq!(found.iter().map(|r| (r.start(), r.end())).collect::<Vec<_>>(), expected);
            theirs.push(digest(0, false));
            prop_assert_eq!(pieces.differing(&theirs, Bytes::new(size)), None);
        }
    }

    #[test]
    fn number_of_pieces_is_bounded() {
        let cases = [(0, 1 << 20), (1 << 34, 1 << 20), ((1 << 34) + 1, 1 << 21), (u64::MAX, 1 << 50)];
        for (size, length) in cases {
            assert_eq!(Pieces::length_for(Bytes::new(size)), Bytes::new(length), "{size}");
        }
    }
}
