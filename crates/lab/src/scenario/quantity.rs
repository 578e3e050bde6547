//! Numbers with units: a swept value's, from how it is written, and a measured one's, from its name.

use longhaul_core::units::{Bytes, Rate, Rtt};

/// In what a value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitOf {
    /// Bits a second: names that end in `_bps`.
    BitsPerSecond,
    /// Bytes: names that end in `_bytes`.
    Bytes,
    /// Seconds: names that end in `_s`.
    Seconds,
    /// A pure number.
    Number,
}

/// Returns the unit that a value's name tells.
pub fn unit_of(name: &str) -> UnitOf {
    match name.rsplit_once('_').map(|(_, last)| last) {
        Some("bps") => UnitOf::BitsPerSecond,
        Some("bytes") => UnitOf::Bytes,
        Some("s") => UnitOf::Seconds,
        _ => UnitOf::Number,
    }
}

impl UnitOf {
    /// Returns a value's name without its unit, as a reader likes it: "steady" for "`steady_bps`".
    pub fn label_of(self, name: &str) -> String {
        let stem = match self {
            Self::BitsPerSecond => name.strip_suffix("_bps"),
            Self::Bytes => name.strip_suffix("_bytes"),
            Self::Seconds => name.strip_suffix("_s"),
            Self::Number => None,
        };
        stem.unwrap_or(name).replace('_', " ")
    }

    /// Returns the unit, and its size in base units, in which a number like `largest` is best read.
    pub(super) fn for_reading(self, largest: f64) -> (&'static str, f64) {
        let choices: &[(&str, f64)] = match self {
            Self::BitsPerSecond => &[("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0)],
            Self::Bytes => &[("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)],
            Self::Seconds => &[("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)],
            Self::Number => &[("", 1.0)],
        };
        let fits = choices.iter().find(|(_, size)| largest.abs() >= *size);
        // Nothing to go by, as for zero: the plain unit.
        let plain = choices.iter().find(|(_, size)| *size == 1.0);
        fits.or(plain).copied().unwrap_or(("", 1.0))
    }
}

/// A swept value as a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantity {
    /// In the unit's base: bytes, bits a second, seconds.
    pub value: f64,
    /// In what.
    pub unit: UnitOf,
}

impl Quantity {
    /// Reads "25MB", "10Gbit", "200ms" or "4"; `None` where it is a word.
    pub fn parse(text: &str) -> Option<Self> {
        let of = |value, unit| Some(Self { value, unit });
        if let Ok(number) = text.parse::<f64>() {
            return number.is_finite().then_some(Self { value: number, unit: UnitOf::Number });
        }
        if let Ok(bytes) = text.parse::<Bytes>() {
            return of(bytes.get() as f64, UnitOf::Bytes);
        }
        if let Ok(rate) = text.parse::<Rate>() {
            return of(rate.as_bits_per_sec() as f64, UnitOf::BitsPerSecond);
        }
        of(text.parse::<Rtt>().ok()?.get().as_secs_f64(), UnitOf::Seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swept_values_are_read_by_how_they_are_written() {
        for (text, expected) in [
            ("25MB", Some((25e6, UnitOf::Bytes))),
            ("10Gbit", Some((1e10, UnitOf::BitsPerSecond))),
            ("200ms", Some((0.2, UnitOf::Seconds))),
            ("0.001", Some((0.001, UnitOf::Number))),
            ("auto", None),
            ("inf", None),
            ("", None),
        ] {
            assert_eq!(Quantity::parse(text).map(|q| (q.value, q.unit)), expected, "{text}");
        }
    }

    #[test]
    fn a_name_tells_the_unit() {
        for (name, unit, label) in [
            ("steady_bps", UnitOf::BitsPerSecond, "steady"),
            ("socket_peak_bytes", UnitOf::Bytes, "socket peak"),
            ("wall_s", UnitOf::Seconds, "wall"),
            ("retransmits", UnitOf::Number, "retransmits"),
            ("bps", UnitOf::Number, "bps"),
        ] {
            assert_eq!((unit_of(name), unit_of(name).label_of(name).as_str()), (unit, label));
        }
    }

    #[test]
    fn the_largest_value_chooses_the_prefix() {
        assert_eq!(UnitOf::BitsPerSecond.for_reading(6.5e9), ("Gbit/s", 1e9));
        assert_eq!(UnitOf::Bytes.for_reading(2.5e7), ("MB", 1e6));
        assert_eq!(UnitOf::Seconds.for_reading(0.02), ("ms", 1e-3));
        assert_eq!(UnitOf::Seconds.for_reading(0.0), ("s", 1.0));
        assert_eq!(UnitOf::Number.for_reading(0.0), ("", 1.0));
    }
}
