//! Formats values with the most readable unit prefix.

use crate::chart::Unit;

/// A unit with a prefix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Prefixed {
    /// One prefixed unit in units without prefix.
    pub(super) factor: f64,
    /// The unit's symbol; empty for pure numbers.
    pub(super) name: &'static str,
}

/// The size of a unit in units without prefix, and its symbol.
type Prefix = (f64, &'static str);

const SECONDS: &[Prefix] = &[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")];
const BYTES: &[Prefix] = &[(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes")];
const BINARY_BYTES: &[Prefix] = &[
    (1_099_511_627_776.0, "TiB"),
    (1_073_741_824.0, "GiB"),
    (1_048_576.0, "MiB"),
    (1024.0, "KiB"),
    (1.0, "bytes"),
];
const RATES: &[Prefix] =
    &[(1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")];
const NUMBERS: &[Prefix] = &[(1e12, "trillions"), (1e9, "billions"), (1e6, "millions")];

/// Returns the largest decimal prefix in which `largest` is at least 1.
pub(super) fn decimal(unit: Unit, largest: f64) -> Prefixed {
    match unit {
        // Numbers below ten million are readable in full.
        Unit::Number if largest.abs() < 1e7 => Prefixed { factor: 1.0, name: "" },
        Unit::Number => suiting(NUMBERS, largest),
        Unit::Seconds => suiting(SECONDS, largest),
        Unit::Bytes => suiting(BYTES, largest),
        Unit::BitsPerSecond => suiting(RATES, largest),
    }
}

/// Like [`decimal`], but with powers of 1024 for bytes.
pub(super) fn of_power(unit: Unit, value: f64) -> Prefixed {
    match unit {
        Unit::Bytes => suiting(BINARY_BYTES, value),
        _ => decimal(unit, value),
    }
}

/// Returns the first unit in which `value` is at least 1; the unprefixed unit if none.
fn suiting(prefixes: &[Prefix], value: f64) -> Prefixed {
    let least = prefixes.iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let plain = prefixes.iter().find(|(factor, _)| *factor == 1.0);
    // Tolerates rounding just below 1.
    let suits = |(factor, _): &&Prefix| value.abs() >= factor * (1.0 - 1e-9);
    let found = if value == 0.0 { plain } else { prefixes.iter().find(suits) };
    let (factor, name) = found.or(least).copied().unwrap_or((1.0, ""));
    Prefixed { factor, name }
}

/// Formats a value with three significant digits and its unit: "68.8 MB".
pub(crate) fn format_value(unit: Unit, value: f64) -> String {
    let unit = decimal(unit, value);
    let value = value / unit.factor;
    let whole_digits = value.abs().log10().floor().max(0.0);
    let decimals =
        if unit.name.is_empty() || value == 0.0 { 0 } else { (2.0 - whole_digits).max(0.0) as usize };
    [number(value, decimals).as_str(), unit.name].join(" ").trim_end().to_owned()
}

/// Formats a number with `decimals` decimals and grouped thousands.
pub(super) fn number(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (sign, digits) = match text.strip_prefix('-') {
        // A number that rounds to zero has no sign.
        Some(digits) if digits.contains(|c: char| ('1'..='9').contains(&c)) => ("\u{2212}", digits),
        Some(digits) => ("", digits),
        None => ("", text.as_str()),
    };
    let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut grouped = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_is_that_of_the_largest_value_and_text_has_three_significant_digits() {
        for (unit, largest, name) in [
            (Unit::Bytes, 68.8e6, "MB"),
            (Unit::Bytes, 999.0, "bytes"),
            (Unit::Bytes, 0.0, "bytes"),
            (Unit::BitsPerSecond, 6.5e9, "Gbit/s"),
            (Unit::BitsPerSecond, 1e9, "Gbit/s"),
            (Unit::BitsPerSecond, 0.1, "bit/s"),
            (Unit::Seconds, 113.0, "s"),
            (Unit::Seconds, 0.2, "ms"),
            (Unit::Seconds, 0.1 + 0.2 - 0.3 + 1e-6, "µs"),
            (Unit::Seconds, 0.0, "s"),
            (Unit::Seconds, 1e-12, "ns"),
            (Unit::Number, 22_636.0, ""),
            (Unit::Number, -2e9, "billions"),
        ] {
            assert_eq!(decimal(unit, largest).name, name, "{largest}");
        }
        assert_eq!(of_power(Unit::Bytes, 65536.0).name, "KiB");
        assert_eq!(of_power(Unit::BitsPerSecond, 1e6).name, "Mbit/s");
        assert_eq!(format_value(Unit::Bytes, 68_800_000.0), "68.8 MB");
        assert_eq!(format_value(Unit::Seconds, 113.4), "113 s");
        assert_eq!(format_value(Unit::Seconds, 0.0), "0 s");
        assert_eq!(format_value(Unit::BitsPerSecond, 6.5e9), "6.50 Gbit/s");
        assert_eq!(format_value(Unit::Number, 22_636.0), "22,636");
        let grouped = [(0.0, 0), (-0.0, 1), (999.0, 0), (-1_234_567.25, 2)]
            .map(|(value, digits)| number(value, digits));
        assert_eq!(grouped, ["0", "0.0", "999", "\u{2212}1,234,567.25"]);
    }
}
