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

/// Returns at least 25 MiB of a content.
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

/// A login page.
pub(crate) const PAGE: &[u8] = b"<!DOCTYPE html><html><body>Please log in.</body></html>\n";

/// Describes of which contents `found` consists.
pub(crate) fn composition(found: &[u8]) -> String {
    const PIECE: usize = 4096;
    let mut runs: Vec<(&str, usize, usize)> = Vec::new();
    for start in (0..found.len()).step_by(PIECE) {
        let end = (start + PIECE).min(found.len());
        let piece = &found[start..end];
        let of = |number: usize| content(number).get(start..end) == Some(piece);
        let what = match (0..CONTENTS.len()).find(|number| of(*number)) {
            Some(0) => "build 0",
            Some(1) => "build 1",
            Some(_) => "build 2",
            None if piece.iter().all(|byte| *byte == 0) => "zeros",
            None if piece.starts_with(PAGE) => "a login page",
            None => "other bytes",
        };
        match runs.last_mut() {
            Some((last, _, until)) if *last == what => *until = end,
            _ => runs.push((what, start, end)),
        }
    }
    let shown: Vec<_> =
        runs.iter().take(12).map(|(what, start, end)| format!("{start}..{end} {what}")).collect();
    format!("{} bytes: {}{}", found.len(), shown.join(", "), if runs.len() > 12 { ", ..." } else { "" })
}
