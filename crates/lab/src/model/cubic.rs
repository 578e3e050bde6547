//! CUBIC's window growth after a loss (RFC 9438).

/// What is left of a window after a loss.
pub(super) const BETA: f64 = 0.7;
/// How steep the curve is, in packets a second cubed.
const C: f64 = 0.4;

/// Returns the window (packets) that the curve asks for `seconds` after one of `before` was cut to `reduced`.
pub(super) fn window(before: f64, reduced: f64, seconds: f64) -> f64 {
    let k = ((before - reduced).max(0.0) / C).cbrt();
    C * (seconds - k).powi(3) + before
}
