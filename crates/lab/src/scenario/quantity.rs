//! Units of numbers: of swept values by notation, of measured values by name.

use longhaul_core::units::{Bytes, Rate, Rtt};

use crate::spec::QueueLimit;

use super::sweep::path_key;

/// The unit of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitOf {
    /// Bits per second: names that end in `_bps`.
    BitsPerSecond,
    /// Bytes: names that end in `_bytes`.
    Bytes,
    /// Seconds: names that end in `_s`.
    Seconds,
    /// A pure number.
    Number,
}

/// Returns the unit of a value by its name.
pub fn unit_of(name: &str) -> UnitOf {
    match name.rsplit_once('_').map(|(_, last)| last) {
        Some("bps") => UnitOf::BitsPerSecond,
        Some("bytes") => UnitOf::Bytes,
        Some("s") => UnitOf::Seconds,
        _ => UnitOf::Number,
    }
}

impl UnitOf {
    /// Returns a value's name without its unit, for labels: "steady" for "`steady_bps`".
    pub fn label_of(self, name: &str) -> String {
        let stem = match self {
            Self::BitsPerSecond => name.strip_suffix("_bps"),
            Self::Bytes => name.strip_suffix("_bytes"),
            Self::Seconds => name.strip_suffix("_s"),
            Self::Number => None,
        };
        stem.unwrap_or(name).replace('_', " ")
    }

    /// Returns the most readable unit for numbers up to `largest`, and its size in base units.
    pub(super) fn for_reading(self, largest: f64) -> (&'static str, f64) {
        let choices: &[(&str, f64)] = match self {
            Self::BitsPerSecond => &[("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0)],
            Self::Bytes => &[("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)],
            Self::Seconds => &[("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)],
            Self::Number => &[("", 1.0)],
        };
        let fits = choices.iter().find(|(_, size)| largest.abs() >= *size);
        // For zero: the base unit.
        let plain = choices.iter().find(|(_, size)| *size == 1.0);
        fits.or(plain).copied().unwrap_or(("", 1.0))
    }
}

/// Converts swept values to numbers in base units: bytes, bits per second, seconds.
///
/// `None` if one is not a number, or if units differ. A plain 0 fits any unit.
pub fn measures(parameter: &str, values: &[String]) -> Option<(UnitOf, Vec<f64>)> {
    let read: Vec<(UnitOf, f64)> =
        values.iter().map(|value| measure(parameter, value)).collect::<Option<_>>()?;
    let is_zero = |(unit, value): &(UnitOf, f64)| *unit == UnitOf::Number && *value == 0.0;
    let unit = read.iter().find(|of| !is_zero(of)).map_or(UnitOf::Number, |(unit, _)| *unit);
    let fits = |of: &(UnitOf, f64)| of.0 == unit || is_zero(of);
    read.iter().all(fits).then(|| (unit, read.iter().map(|(_, value)| *value).collect()))
}

/// Converts "25MB", "10Gbit", "200ms" or "4"; a value of the path by the path's rules: a rate of
/// "100M" is no size.
fn measure(parameter: &str, text: &str) -> Option<(UnitOf, f64)> {
    let number = || text.parse::<f64>().ok().filter(|number| number.is_finite());
    let pure = || Some((UnitOf::Number, number()?));
    let bytes = || Some((UnitOf::Bytes, text.parse::<Bytes>().ok()?.get() as f64));
    let rate = || Some((UnitOf::BitsPerSecond, text.parse::<Rate>().ok()?.as_bits_per_sec() as f64));
    let time = || Some((UnitOf::Seconds, text.parse::<Rtt>().ok()?.get().as_secs_f64()));
    match path_key(parameter) {
        Some("rate" | "background") => rate(),
        Some("rtt" | "ack_compression") => time(),
        Some("mtu") => bytes(),
        Some("queue") => match text.parse().ok()? {
            QueueLimit::Bytes(bytes) => Some((UnitOf::Bytes, bytes.get() as f64)),
            QueueLimit::Packets(packets) => Some((UnitOf::Number, packets as f64)),
        },
        Some(_) => pure(),
        None => pure().or_else(bytes).or_else(rate).or_else(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swept_values_are_read_by_how_they_are_written() {
        for (parameter, text, expected) in [
            ("size", "25MB", Some((UnitOf::Bytes, 25e6))),
            ("size", "100M", Some((UnitOf::Bytes, 104_857_600.0))),
            ("rate", "10Gbit", Some((UnitOf::BitsPerSecond, 1e10))),
            ("rtt", "200ms", Some((UnitOf::Seconds, 0.2))),
            ("path.ack_compression", "5ms", Some((UnitOf::Seconds, 0.005))),
            ("path.background", "200M", Some((UnitOf::BitsPerSecond, 2e8))),
            ("path.background", "20%", None),
            ("path.cross_flows", "4", Some((UnitOf::Number, 4.0))),
            ("path.cross_flows", "4@5s..", None),
            ("share", "0.001", Some((UnitOf::Number, 0.001))),
            ("size", "auto", None),
            ("size", "inf", None),
            ("size", "", None),
            ("path.rate", "100M", Some((UnitOf::BitsPerSecond, 1e8))),
            ("path.rtt", "0", Some((UnitOf::Seconds, 0.0))),
            ("path.queue", "250MB", Some((UnitOf::Bytes, 2.5e8))),
            ("path.queue", "1000packets", Some((UnitOf::Number, 1000.0))),
            ("path.aqm", "red", None),
            ("path.mtu", "9000", Some((UnitOf::Bytes, 9000.0))),
            ("path.loss", "0.00001", Some((UnitOf::Number, 0.00001))),
            ("path.hosts", "tuned", None),
        ] {
            assert_eq!(measure(parameter, text), expected, "{parameter} {text}");
        }
    }

    #[test]
    fn values_of_one_unit_have_an_axis_and_a_plain_zero_is_of_any() {
        let read = |values: &[&str]| {
            measures("p", &values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(read(&["0", "1MB", "2MB"]), Some((UnitOf::Bytes, vec![0.0, 1e6, 2e6])));
        assert_eq!(read(&["10ms", "0"]), Some((UnitOf::Seconds, vec![0.01, 0.0])));
        assert_eq!(read(&["0", "1"]), Some((UnitOf::Number, vec![0.0, 1.0])));
        assert_eq!(read(&["1", "1MB"]), None);
        assert_eq!(read(&["1MB", "auto"]), None);
    }

    #[test]
    fn unit_follows_from_name() {
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
