//! A decimal number followed by a unit: the syntax of all quantities.

use thiserror::Error;

/// The reason why a quantity cannot be parsed, with the text and an example of a valid one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("'{given}' is not a {what}: write {example}")]
pub struct ParseUnitError {
    given: String,
    what: &'static str,
    example: &'static str,
}

/// Parses a quantity into a whole number of base units; `factor` converts the number and its unit
/// into them.
pub(super) fn parse(
    text: &str,
    (what, example): (&'static str, &'static str),
    factor: impl FnOnce(f64, &str) -> Option<f64>,
) -> Result<u64, ParseUnitError> {
    let read = || split(text).and_then(|(number, unit)| scale(number, factor(number, unit)?));
    read().ok_or_else(|| ParseUnitError { given: text.to_owned(), what, example })
}

/// Splits "1.5GiB" into 1.5 and "GiB"; refuses signs, exponents and an empty number.
pub(super) fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    number.is_finite().then(|| (number, text[end..].trim()))
}

/// Multiplies and rounds to a whole number of base units; `None` if the result exceeds a `u64`.
fn scale(number: f64, factor: f64) -> Option<u64> {
    let value = (number * factor).round();
    // 2^64 is exactly representable as an f64; values from it on do not fit.
    (0.0..18_446_744_073_709_551_616.0).contains(&value).then_some(value as u64)
}
