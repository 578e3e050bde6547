//! A decimal number followed by a unit, as all quantities are written.

use thiserror::Error;

/// Why a quantity could not be read; says what was given and what is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{given}' is not a {what}: write {example}")]
pub struct ParseUnitError {
    given: String,
    what: &'static str,
    example: &'static str,
}

impl ParseUnitError {
    pub(super) fn new(given: &str, what: &'static str, example: &'static str) -> Self {
        Self { given: given.to_owned(), what, example }
    }
}

/// Splits "1.5GiB" into 1.5 and "GiB"; refuses signs, exponents and an empty number.
pub(super) fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    number.is_finite().then(|| (number, text[end..].trim()))
}

/// Multiplies and rounds to a whole number of base units; `None` past what a `u64` holds.
pub(super) fn scale(number: f64, factor: f64) -> Option<u64> {
    let value = (number * factor).round();
    // 2^64 is exactly representable; anything at or above it does not fit.
    (0.0..18_446_744_073_709_551_616.0).contains(&value).then_some(value as u64)
}
