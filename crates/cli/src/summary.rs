//! The summary of a transfer in either direction.

use longhaul_core::advice::Shares;
use longhaul_core::event::Done;
use longhaul_core::units::Bytes;

use crate::say;

/// Prints a result on stderr, without its advice; `name` is the destination. Control characters are
/// removed.
pub(crate) fn say(done: &Done, name: &str) {
    let name = name.replace(char::is_control, "?");
    let were_there =
        if done.resumed > Bytes::ZERO { format!(" ({} were there)", done.resumed) } else { String::new() };
    say::line(format_args!(
        "{name}: {}{were_there} in {:.1} s, {}, limited by {}{}",
        done.bytes,
        done.time.as_secs_f64(),
        done.goodput,
        done.finding.limit,
        limits(&done.finding.shares)
    ));
}

/// Prints the advice below a result.
pub(crate) fn say_advice(advice: &[String]) {
    advice.iter().for_each(|advice| say::line(format_args!("  {advice}")));
}

/// Formats the shares of the limits, the largest first; omits those below 1 %.
fn limits(shares: &Shares) -> String {
    let named = shares.ranked().into_iter().filter(|(_, share)| *share >= 0.01);
    let named: Vec<_> = named.map(|(limit, share)| format!("{limit} {:.0} %", share * 100.0)).collect();
    if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) }
}
