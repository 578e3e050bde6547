//! CUBIC's window growth after a loss (RFC 9438).

/// Multiplicative decrease factor (RFC 9438, section 4.6).
pub(super) const BETA: f64 = 0.7;
/// Scaling factor of the cubic curve, in packets per second cubed (RFC 9438, section 5).
const C: f64 = 0.4;

/// Returns the cubic window in packets, `seconds` after a window of `before` was reduced to `reduced`.
pub(super) fn window(before: f64, reduced: f64, seconds: f64) -> f64 {
    let k = ((before - reduced).max(0.0) / C).cbrt();
    C * (seconds - k).powi(3) + before
}
