//! `--pace auto|off|RATE`.

use longhaul_core::units::Rate;
use longhaul_engine::pace::Pace;

/// Reads the option's value.
pub(crate) fn parse(text: &str) -> Result<Pace, String> {
    match text {
        "auto" => Ok(Pace::Auto),
        "off" => Ok(Pace::Off),
        rate => match rate.parse::<Rate>() {
            Ok(rate) if rate.as_bytes_per_sec() > 0 => Ok(Pace::Fixed(rate)),
            Ok(_) => Err("a pace of nothing sends nothing: write auto, off, or a rate".to_owned()),
            Err(error) => Err(error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_words_and_rates() {
        assert_eq!((parse("auto"), parse("off")), (Ok(Pace::Auto), Ok(Pace::Off)));
        assert_eq!(parse("8Mbit"), Ok(Pace::Fixed(Rate::bits_per_sec(8_000_000))));
        assert!(parse("0bit").is_err() && parse("fast").is_err());
    }
}
