//! Values of options common to several commands.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use longhaul_core::tune::MAX_PARALLEL_FILES;
use longhaul_core::units::{Bytes, Rtt};
use longhaul_engine::connect::{socket_address, without_zone};
use longhaul_engine::sink::memory_budget::AppBuffer;

/// The heading of options for experiments, which the short help omits.
pub(crate) const RESEARCH: &str = "Tuning and research";

/// A named value, and its help.
pub(crate) type Choice<T> = (&'static str, T, &'static str);

/// Parses one of `choices` by its name.
pub(crate) fn choice<T: Copy + Send + Sync + 'static>(
    choices: &'static [Choice<T>],
) -> impl TypedValueParser<Value = T> {
    let names = choices.iter().map(|(name, _, help)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(names).try_map(|given| {
        let found = choices.iter().find(|(name, ..)| *name == given);
        found.map(|(_, value, _)| *value).ok_or("it is not known")
    })
}

/// Parses a timeout; a number without unit is in seconds, as in other programs.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    match time_or_zero(text)? {
        Duration::ZERO => Err("nothing happens in no time".into()),
        time => Ok(time),
    }
}

/// Parses a time like [`time`], or 0.
pub(crate) fn time_or_zero(text: &str) -> Result<Duration, String> {
    let is_bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let with_unit = if is_bare { format!("{text}s") } else { text.to_owned() };
    with_unit.parse::<Rtt>().map(Rtt::get).map_err(|error| error.to_string())
}

/// Parses a period of at least one second, such as 90s, 30m, 12h or 7d; a bare number may mean
/// days.
pub(crate) fn period(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(['s', 'm', 'h', 'd']);
    let seconds = match &text[number.len()..] {
        "" if number.parse::<u32>().is_ok() => {
            return Err(format!("'{text}' may mean seconds or days: write {text}s or {text}d"));
        }
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => 0,
    };
    match number.parse::<u32>() {
        Ok(0) => Err("the least is 1s".into()),
        Ok(number) if seconds > 0 => Ok(Duration::from_secs(u64::from(number) * seconds)),
        _ => Err("write a whole number and s, m, h or d, as 7d".into()),
    }
}

/// Parses a host as clients name it, without a port.
pub(crate) fn host(text: &str) -> Result<String, String> {
    let name = text.trim_start_matches('[').trim_end_matches(']');
    let is_name =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    match is_name || name.parse::<IpAddr>().is_ok() {
        true => Ok(text.to_owned()),
        false => Err("write a name or an IP address without scheme and port, as files.example.org".into()),
    }
}

/// Parses an address to listen at.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    let address = without_zone(text)?.parse::<SocketAddr>();
    address.map(|address| socket_address(address.ip(), address.port())).map_err(|_| {
        let port = text.rsplit(':').next().filter(|port| port.parse::<u16>().is_ok()).unwrap_or("8080");
        format!("write an IP address and a port, as 127.0.0.1:{port}, or [::1]:{port} for IPv6")
    })
}

/// Parses `--app-buffer`.
pub(crate) fn app_buffer(text: &str) -> Result<AppBuffer, String> {
    match text {
        "auto" => Ok(AppBuffer::Auto),
        size => Bytes::with_unit(size).map(AppBuffer::Fixed),
    }
}

/// Parses the number of concurrent files.
pub(crate) fn parallel(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n @ 1..=MAX_PARALLEL_FILES) => Ok(n),
        _ => Err(format!("write a number from 1 to {MAX_PARALLEL_FILES}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_periods_have_a_unit_or_are_of_seconds() {
        assert_eq!((time("5"), time("0.5")), (Ok(Duration::from_secs(5)), Ok(Duration::from_millis(500))));
        assert_eq!(time("200ms"), Ok(Duration::from_millis(200)));
        for text in ["", "0", ".", "1.2.3", "-1", "5x"] {
            assert!(time(text).is_err(), "{text}");
        }
        assert_eq!((time_or_zero("0"), time_or_zero("5")), (Ok(Duration::ZERO), Ok(Duration::from_secs(5))));
        assert!(time("0").is_err() && time_or_zero("5x").is_err());
        assert_eq!(period("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(period("7d"), Ok(Duration::from_secs(604_800)));
        for text in ["", "7", "0d", "-1d", "1.5h", "d", "7\u{fc}", "7dd"] {
            assert!(period(text).is_err(), "{text}");
        }
        assert!(period("3").unwrap_err().contains("write 3s or 3d"));
        assert_eq!(period("0s").unwrap_err(), "the least is 1s");
    }

    #[test]
    fn address_without_an_ip_address_is_answered_by_the_right_form() {
        assert!(listen("127.0.0.1:9522").is_ok() && listen("[::]:0").is_ok());
        assert_eq!(listen("[fe80::f%25lo]:80").unwrap(), listen("[fe80::f%1]:80").unwrap());
        for text in [":9522", "localhost:9522", "9522"] {
            let error = listen(text).unwrap_err();
            assert!(error.contains("127.0.0.1:9522") && error.contains("[::1]:9522"), "{text}: {error}");
        }
        assert!(listen("127.0.0.1").is_err());
    }
}
