//! Identifiers of transfers.

use std::fmt;
use std::str::FromStr;

/// The identifier of a transfer: its number, written as 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gid(u64);

impl Gid {
    /// Creates the identifier of the transfer with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the transfer's number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Parses 16 hexadecimal digits in either case. aria2's abbreviations, which depend on the other
/// transfers, are not accepted.
impl FromStr for Gid {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text.len() != 16 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(());
        }
        u64::from_str_radix(text, 16).map(Self).map_err(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gid_has_16_digits_and_reads_back() {
        for number in [1, 10, u64::MAX] {
            let text = Gid::new(number).to_string();
            assert_eq!((text.len(), text.parse()), (16, Ok(Gid::new(number))));
        }
        assert_eq!("00000000000000FF".parse(), Ok(Gid::new(255)));
        for wrong in " a +00000000000000a 000000000000000g 0000000000000000a é000000000000000".split(' ') {
            assert_eq!(wrong.parse::<Gid>(), Err(()), "{wrong}");
        }
    }
}
