//! Values in steps over time, written "VALUE@TIME,VALUE@TIME".

use std::time::Duration;

use longhaul_core::units::Rtt;

/// Parses steps separated by commas or blanks, each after the one before it; one without a time
/// begins at zero.
pub(super) fn parse<T>(
    text: &str,
    value: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<(Duration, T)>, String> {
    let mut steps: Vec<(Duration, T)> = Vec::new();
    for step in text.split([',', ' ']).filter(|step| !step.is_empty()) {
        let (word, from) = step.split_once('@').unwrap_or((step, "0s"));
        let from = from.parse::<Rtt>().map_err(|error| error.to_string())?.get();
        let value = value(word)?;
        if let Some((before, _)) = steps.last().filter(|(before, _)| *before >= from) {
            return Err(format!("{from:?} does not come after {before:?}"));
        }
        steps.push((from, value));
    }
    Ok(steps)
}

/// Formats steps as [`parse`] reads them.
pub(super) fn shown<T>(steps: &[(Duration, T)], value: impl Fn(&T) -> String) -> String {
    let step = |(from, of): &(Duration, T)| format!("{}@{}s", value(of), from.as_secs_f64());
    steps.iter().map(step).collect::<Vec<_>>().join(",")
}
