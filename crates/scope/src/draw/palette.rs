//! Colours that colour-blind readers can distinguish.

use crate::chart::{NEUTRAL, PALE};

/// The palette of Okabe and Ito without its yellow, which is invisible on white; on white and,
/// lighter, on a dark page.
const COLOURS: [(&str, &str); 7] = [
    ("#0072b2", "#4ba6e0"),
    ("#d55e00", "#f58b46"),
    ("#009e73", "#35c79f"),
    ("#b8579a", "#e39ccb"),
    ("#d08c00", "#f0bc52"),
    ("#3fa0dd", "#9bd3f7"),
    ("#6d5a44", "#c2b29d"),
];
/// Darker variants for further series.
const AGAIN: [(&str, &str); 7] = [
    ("#00456b", "#2f7fb3"),
    ("#8a3d00", "#c4611d"),
    ("#00614a", "#1c9273"),
    ("#74305f", "#b56a9b"),
    ("#835800", "#bd8b25"),
    ("#1c628f", "#65a7d1"),
    ("#3a3024", "#8f8069"),
];
/// Areas behind lines: pale on white, dim on a dark page.
const BANDS: [(&str, &str); 13] = [
    ("#e9e3f5", "#352e4a"),
    ("#fbdcc4", "#54361f"),
    ("#f9cfd6", "#552a35"),
    ("#f3d9ee", "#4c2f49"),
    ("#f7e9a8", "#4d4520"),
    ("#d9eef9", "#203a4b"),
    ("#d5ecd4", "#24432a"),
    ("#d2ece7", "#1e4440"),
    ("#e6dccb", "#453a2a"),
    ("#dcdfe4", "#383d45"),
    ("#eeeeee", "#303030"),
    ("#f6d9b8", "#573a12"),
    ("#f7f7f7", "#242424"),
];
const TEXT: (&str, &str) = ("#444444", "#bbbbbb");

/// Returns the colours of a series on white and on a dark page.
pub(super) fn colour(index: usize) -> (&'static str, &'static str) {
    if index == NEUTRAL {
        return TEXT;
    }
    if index >= PALE {
        return BANDS[(index - PALE) % BANDS.len()];
    }
    let palette = if (index / COLOURS.len()).is_multiple_of(2) { &COLOURS } else { &AGAIN };
    palette[index % COLOURS.len()]
}
