//! Lists that users bring along: cookies and checksums.

use std::time::SystemTime;

use longhaul_core::checksum_list::ChecksumList;
use longhaul_core::proto::cookies::{CookieJar, CookieScope};

/// Reads a file of cookies, and makes the headers of some requests: one line each, and nothing
/// secret without TLS.
pub fn cookies(bytes: &[u8]) {
    let file = CookieJar::parse(bytes);
    let lines = bytes.split(|byte| *byte == b'\n').count();
    assert!(file.skipped.iter().all(|line| (1..=lines).contains(line)) && file.skipped.is_sorted());
    let hosts = ["example.org", "www.example.org", "127.0.0.1", "[::1]", "h", ""];
    for host in hosts {
        for path in ["/", "/data/x", "/d"] {
            let of = |is_encrypted| {
                let scope = CookieScope { host, path, is_encrypted };
                let field = file.jar.field(scope, SystemTime::UNIX_EPOCH, &[]);
                field.map(|field| field.value().to_owned()).unwrap_or_default()
            };
            let (plain, encrypted) = (of(false), of(true));
            assert!(plain.len() <= encrypted.len(), "TLS carries every cookie");
            assert!(!encrypted.contains(['\r', '\n', '\0']));
        }
    }
}

/// Reads a list of checksums, and looks up the name of each line.
pub fn checksum_list(bytes: &[u8]) {
    let Ok(list) = ChecksumList::parse(bytes, "SUMS") else { return };
    let text = String::from_utf8_lossy(bytes);
    for line in text.lines() {
        for word in line.split([' ', '*', '(', ')']).filter(|word| !word.is_empty()) {
            if let Ok(found) = list.find(word) {
                let text = text.to_ascii_lowercase();
                assert!(found.iter().all(|sum| text.contains(sum.hex())), "a digest that no line has");
            }
        }
    }
}
