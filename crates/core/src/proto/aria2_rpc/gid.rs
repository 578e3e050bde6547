//! Identifiers of transfers.

use std::fmt;
use std::str::FromStr;

/// A transfer's identifier: 16 hexadecimal digits on the wire, here the transfer's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gid(u64);

impl Gid {
    /// Makes the identifier of the transfer of this number.
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

/// Reads 16 hexadecimal digits in either case. The abbreviations that aria2 takes are not read: they depend on what else there is.
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
        for wrong in
            ["", "a", "+00000000000000a", "000000000000000g", "0000000000000000a", "é000000000000000"]
        {
            assert_eq!(wrong.parse::<Gid>(), Err(()), "{wrong}");
        }
    }
}
