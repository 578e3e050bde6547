//! The fixed contents of builds, and the composition of a file.

use std::sync::LazyLock;

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::faults::schedule::Build;

/// Longer than the longest build with its excess bytes.
const LEN: usize = 25 << 20;

/// Three contents that differ everywhere, including the first byte.
static CONTENTS: LazyLock<[Vec<u8>; 3]> = LazyLock::new(|| {
    [1, 2, 3].map(|number| {
        let mut bytes = vec![0; LEN];
        ChaCha8Rng::seed_from_u64(number).fill_bytes(&mut bytes);
        bytes[0] = number as u8;
        bytes
    })
});

pub(crate) fn content(number: usize) -> &'static [u8] {
    &CONTENTS[number]
}

impl Build {
    pub(crate) fn bytes(self) -> &'static [u8] {
        &content(self.content)[..self.len]
    }
}

/// The content of the final name before the first run.
pub(crate) const OLDER: &[u8] = b"an older file, of no build";

pub(crate) const PAGE: &[u8] = b"<!DOCTYPE html><html><body>Please log in.</body></html>\n";

/// Describes of which contents `found` consists, in pieces of 4 KiB.
pub(crate) fn composition(found: &[u8]) -> String {
    let mut runs: Vec<(String, usize)> = Vec::new();
    for (number, piece) in found.chunks(4096).enumerate() {
        let start = number * 4096;
        let build =
            CONTENTS.iter().position(|all| all.get(start..).is_some_and(|rest| rest.starts_with(piece)));
        let what = match build {
            Some(build) => format!("build {build}"),
            None if piece.iter().all(|byte| *byte == 0) => "zeros".to_owned(),
            None if piece.starts_with(PAGE) => "a login page".to_owned(),
            None => "other bytes".to_owned(),
        };
        if runs.last().is_none_or(|(last, _)| *last != what) {
            runs.push((what, start));
        }
    }
    let shown: Vec<_> = runs.iter().take(12).map(|(what, start)| format!("{what} from {start}")).collect();
    format!("{} bytes: {}", found.len(), shown.join(", "))
}
