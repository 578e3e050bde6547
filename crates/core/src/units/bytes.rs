//! A number of bytes.

use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::number::{ParseUnitError, parse, split};

/// A number of bytes, written with IEC prefixes ("64MiB") or SI prefixes ("250MB"); serialised as
/// an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(u64);

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);

    /// Creates a size of `n` bytes.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// Creates a size of `n` KiB.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// Creates a size of `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// Creates a size of `n` GiB.
    pub const fn gib(n: u64) -> Self {
        Self(n << 30)
    }

    /// Returns the number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the number of bytes as an index; saturates if `usize` is narrower.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    /// Subtracts, saturating at zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl Mul<u64> for Bytes {
    type Output = Self;
    fn mul(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 5] =
            [(1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match UNITS.iter().find(|(size, _)| self.0 >= *size) {
            Some((size, unit)) if self.0.is_multiple_of(*size) => f.pad(&format!("{} {unit}", self.0 / size)),
            Some((size, unit)) => f.pad(&format!("{:.1} {unit}", self.0 as f64 / *size as f64)),
            None => f.pad(&format!("{} B", self.0)),
        }
    }
}

impl Bytes {
    /// Parses a size without a bare prefix: in some programs 5G is 5 GB, in others 5 GiB.
    ///
    /// # Errors
    /// A message with both spellings for a bare prefix, otherwise that of [`ParseUnitError`].
    pub fn with_unit(text: &str) -> Result<Self, String> {
        let size: Self = text.parse().map_err(|error: ParseUnitError| error.to_string())?;
        let Some((number, unit)) = split(text).filter(|_| size != Self::ZERO) else { return Ok(size) };
        let (decimal, binary) = match unit.to_ascii_lowercase().as_str() {
            "k" => ("kB", "KiB"),
            "m" => ("MB", "MiB"),
            "g" => ("GB", "GiB"),
            "t" => ("TB", "TiB"),
            _ => return Ok(size),
        };
        Err(format!("'{text}' may be decimal or binary: write {number}{decimal} or {number}{binary}"))
    }
}

impl FromStr for Bytes {
    type Err = ParseUnitError;

    /// Parses "4096", "64KiB", "64K", "250MB". A prefix without B (K, M, G, T) is IEC, as in
    /// head(1) and nginx; options of commands refuse it ([`Self::with_unit`]).
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let factor = |_, unit: &str| {
            Some(match unit.to_ascii_lowercase().as_str() {
                "" | "b" => 1.0,
                "k" | "kib" => 1024.0,
                "m" | "mib" => 1_048_576.0,
                "g" | "gib" => 1_073_741_824.0,
                "t" | "tib" => 1_099_511_627_776.0,
                "kb" => 1e3,
                "mb" => 1e6,
                "gb" => 1e9,
                "tb" => 1e12,
                _ => return None,
            })
        };
        parse(text, ("size", "bytes or a unit, as in 64MiB or 250MB"), factor).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iec_si_and_plain_sizes_are_parsed_and_other_texts_refused() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64MiB", 64 << 20),
            ("64m", 64 << 20),
            ("250MB", 250_000_000),
            ("1.5 GiB", 3 << 29),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "MiB", "-1", "1e9", "1.2.3M", "12 parsecs", "99999999999999T", "NaN", "∞"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn bare_prefix_is_refused_with_both_spellings_and_display_has_one_decimal() {
        for (text, decimal, binary) in [
            ("5G", "5GB", "5GiB"),
            ("1.5 m", "1.5MB", "1.5MiB"),
            ("64k", "64kB", "64KiB"),
            ("1T", "1TB", "1TiB"),
        ] {
            let error = Bytes::with_unit(text).unwrap_err();
            assert!(error.contains(&format!("write {decimal} or {binary}")), "{error}");
            assert!(decimal.parse::<Bytes>().is_ok() && binary.parse::<Bytes>().is_ok());
        }
        assert_eq!(Bytes::with_unit("64MiB"), Ok(Bytes::mib(64)));
        assert_eq!((Bytes::with_unit("4096"), Bytes::with_unit("0G")), (Ok(Bytes(4096)), Ok(Bytes::ZERO)));
        assert!(Bytes::with_unit("G").is_err() && Bytes::with_unit("5 parsecs").is_err());
        let sizes = [64 << 20, 1_610_612_737, 17].map(|bytes| Bytes::new(bytes).to_string());
        assert_eq!(sizes, ["64 MiB", "1.5 GiB", "17 B"]);
    }
}
