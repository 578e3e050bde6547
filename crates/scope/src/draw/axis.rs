//! An axis with its range, its ticks at round numbers, and its label.

use crate::chart::{Axis, Scale, Unit};

use super::prefix::{Prefixed, decimal, number, of_power};

/// An axis with range and ticks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DrawnAxis {
    /// The value at the start.
    pub(super) low: f64,
    /// The value at the end; greater than `low`.
    pub(super) high: f64,
    /// The ticks, by rising value.
    pub(super) ticks: Vec<Tick>,
    /// The label: quantity and unit.
    pub(super) label: String,
    /// The unit of the tick labels.
    pub(super) unit: Prefixed,
    /// The base of a logarithmic axis.
    pub(super) base: Option<f64>,
}

/// A tick.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tick {
    /// Its value.
    pub(super) value: f64,
    /// The label.
    pub(super) text: String,
}

/// Smaller values count as zero: they would lead to divisions by zero.
const MIN_VALUE: f64 = 1e-30;

/// Where the range ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// At the largest value: a line reaches the edge.
    AtValue,
    /// At the next tick: no point touches the edge.
    AtTick,
}

impl DrawnAxis {
    /// Makes an axis for `values`, with about `most` ticks.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>, end: End, most: usize) -> Self {
        match &axis.scale {
            Scale::Linear => Self::linear(axis, values.chain([0.0]), end, most),
            Scale::Near => Self::linear(axis, values, end, most),
            Scale::Logarithmic => Self::logarithmic(axis, values, most),
            Scale::Names(names) => Self::names(axis, names),
        }
    }

    fn linear(axis: &Axis, values: impl Iterator<Item = f64>, end: End, most: usize) -> Self {
        let (low, high) =
            values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low > high { (0.0, 0.0) } else { (low, high) };
        // Values are equal within rounding: start the range at zero, or give it the length one.
        let low = if high - low < high.abs().max(low.abs()) * 1e-6 { low.min(0.0) } else { low };
        let high = if high - low < MIN_VALUE { 1.0 } else { high };
        let unit = decimal(axis.unit, high.max(-low));
        let step = round_step((high - low) / unit.factor, most) * unit.factor;
        let first = (low / step + 1e-9).floor();
        let last = match end {
            End::AtValue => (high / step + 1e-9).floor(),
            End::AtTick => (high / step - 1e-9).ceil(),
        };
        let decimals = decimals(step / unit.factor);
        let tick = |index: f64| {
            let value = index * step;
            Tick { value, text: number(value / unit.factor, decimals) }
        };
        let ticks = (0..=(last - first) as usize).map(|index| tick(first + index as f64)).collect();
        let label = with_unit(&axis.label, unit.name);
        Self { low: first * step, high: high.max(last * step), ticks, label, unit, base: None }
    }

    fn logarithmic(axis: &Axis, values: impl Iterator<Item = f64>, most: usize) -> Self {
        /// Powers of two stand nearer to the ends of small counts, as of streams.
        const SMALL_COUNT: f64 = 1000.0;
        // A logarithmic axis has no zero or negative values.
        let positive = values.filter(|value| *value > MIN_VALUE);
        let (low, high) = positive.fold((f64::MAX, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
        let is_count = axis.unit == Unit::Number && (1.0..=high).contains(&low) && high < SMALL_COUNT;
        let base: f64 = if axis.unit == Unit::Bytes || is_count { 2.0 } else { 10.0 };
        let (low, high) = if low > high { (1.0, base) } else { (low, high) };
        let first = (low.log(base) + 1e-9).floor();
        let last = (high.log(base) - 1e-9).ceil().max(first + 1.0);
        let every = ((last - first) / most.max(1) as f64).ceil().max(1.0);
        let tick = |index: usize| {
            let value = base.powf(first + index as f64 * every);
            Tick { value, text: with_its_unit(axis.unit, value) }
        };
        let ticks = (0..=((last - first) / every) as usize).map(tick).collect();
        Self {
            low: base.powf(first),
            high: base.powf(last),
            ticks,
            label: axis.label.clone(),
            unit: of_power(axis.unit, high),
            base: Some(base),
        }
    }

    fn names(axis: &Axis, names: &[String]) -> Self {
        let tick = |(index, name): (usize, &String)| Tick { value: index as f64, text: name.clone() };
        Self {
            low: -0.5,
            high: names.len().max(1) as f64 - 0.5,
            ticks: names.iter().enumerate().map(tick).collect(),
            label: axis.label.clone(),
            unit: decimal(Unit::Number, 0.0),
            base: None,
        }
    }

    /// Returns the position of a value between start (0) and end (1); `None` if it is outside the
    /// axis.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let place = if self.base.is_some() {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        (-1e-6..=1.0 + 1e-6).contains(&place).then_some(place)
    }
}

/// Returns the smallest of 1, 2 and 5 times a power of ten that divides `span` into at most `most`
/// steps.
fn round_step(span: f64, most: usize) -> f64 {
    let least = span / most.max(1) as f64;
    let power = 10f64.powf(least.log10().floor());
    let fits = |factor: &f64| factor * power >= least * (1.0 - 1e-9);
    power * [1.0, 2.0, 5.0].into_iter().find(fits).unwrap_or(10.0)
}

/// Returns the number of decimals that distinguish two ticks.
fn decimals(step: f64) -> usize {
    (-step.log10().floor()).clamp(0.0, 12.0) as usize
}

fn with_unit(label: &str, unit: &str) -> String {
    if unit.is_empty() { label.to_owned() } else { format!("{label} [{unit}]") }
}

fn with_its_unit(unit: Unit, value: f64) -> String {
    let unit = of_power(unit, value);
    let value = value / unit.factor;
    // Small values are readable in scientific notation only.
    let text = if value < 1e-3 { format!("{value:e}") } else { number(value, decimals(value)) };
    if unit.name.is_empty() { text } else { format!("{text} {}", unit.name) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn axis(unit: Unit, scale: Scale) -> Axis {
        Axis::new("Size", unit, scale)
    }

    fn texts(ruler: &DrawnAxis) -> Vec<&str> {
        ruler.ticks.iter().map(|tick| tick.text.as_str()).collect()
    }

    fn linear(unit: Unit, values: &[f64], end: End) -> DrawnAxis {
        DrawnAxis::new(&axis(unit, Scale::Linear), values.iter().copied(), end, 6)
    }

    #[test]
    fn ticks_stand_at_round_numbers_from_zero() {
        let ruler = linear(Unit::Bytes, &[12e6, 68.8e6], End::AtTick);
        assert_eq!(texts(&ruler), ["0", "20", "40", "60", "80"]);
        assert_eq!((ruler.label.as_str(), ruler.low, ruler.high), ("Size [MB]", 0.0, 80e6));
        let ruler = linear(Unit::BitsPerSecond, &[1.1e9], End::AtTick);
        assert_eq!(texts(&ruler), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0", "1.2"]);
        let ruler = linear(Unit::Seconds, &[113.0], End::AtValue);
        assert_eq!((texts(&ruler), ruler.high), (vec!["0", "20", "40", "60", "80", "100"], 113.0));
        let ruler = linear(Unit::Number, &[60_000.0], End::AtTick);
        assert_eq!(texts(&ruler)[1], "10,000");
        let ruler = linear(Unit::Number, &[-3.0, 7.0], End::AtTick);
        assert_eq!(texts(&ruler), ["\u{2212}4", "\u{2212}2", "0", "2", "4", "6", "8"]);
        let range =
            |values, end| (linear(Unit::Bytes, values, end).low, linear(Unit::Bytes, values, end).high);
        for values in [&[][..], &[0.0], &[-0.0]] {
            assert_eq!(range(values, End::AtTick), (0.0, 1.0));
        }
        assert_eq!(range(&[-5.0], End::AtValue), (-5.0, 0.0));
    }

    #[test]
    fn nearly_equal_values_fill_axis() {
        let near = |values: &[f64]| {
            let axis = axis(Unit::BitsPerSecond, Scale::Near);
            DrawnAxis::new(&axis, values.iter().copied(), End::AtTick, 6)
        };
        assert_eq!(texts(&near(&[91.2e6, 96.9e6])), ["91", "92", "93", "94", "95", "96", "97"]);
        assert_eq!(texts(&near(&[95e6, 95e6])), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!((near(&[]).low, near(&[]).high), (0.0, 1.0));
    }

    #[test]
    fn powers_of_two_for_bytes_and_of_ten_for_all_else() {
        let ruler = |unit, values: &[f64]| {
            DrawnAxis::new(&axis(unit, Scale::Logarithmic), values.iter().copied(), End::AtTick, 8)
        };
        let bytes = ruler(Unit::Bytes, &[65_536.0, 4_194_304.0]);
        assert_eq!(texts(&bytes), ["64 KiB", "128 KiB", "256 KiB", "512 KiB", "1 MiB", "2 MiB", "4 MiB"]);
        assert_eq!(bytes.label, "Size");
        assert_eq!(texts(&ruler(Unit::Seconds, &[0.002, 2.0])), ["1 ms", "10 ms", "100 ms", "1 s", "10 s"]);
        let sparse = ruler(Unit::Bytes, &[1.0, 1e12]);
        assert!(sparse.ticks.len() <= 9, "{:?}", texts(&sparse));
        assert_eq!([0.0, -1.0, 1.0].map(|value| sparse.place(value)), [None, None, Some(0.0)]);
        assert_eq!(texts(&ruler(Unit::Number, &[-1.0, 0.0])), ["1", "10"]);
        assert_eq!(texts(&ruler(Unit::Number, &[1.0, 20.0])), ["1", "2", "4", "8", "16", "32"]);
        assert_eq!(texts(&ruler(Unit::Number, &[1e-5, 0.01])), ["1e-5", "1e-4", "0.001", "0.01"]);
    }

    #[test]
    fn names_stand_side_by_side() {
        let names = vec!["curl".to_owned(), "longhaul".to_owned()];
        let ruler = DrawnAxis::new(&axis(Unit::Number, Scale::Names(names)), [].into_iter(), End::AtTick, 6);
        assert_eq!(texts(&ruler), ["curl", "longhaul"]);
        assert_eq!((ruler.place(0.0), ruler.place(1.0), ruler.place(2.0)), (Some(0.25), Some(0.75), None));
    }

    proptest! {
        #[test]
        fn every_value_has_its_place(values in prop::collection::vec(-1e15..1e15f64, 0..20), most in 1usize..12) {
            for (end, scale) in [(End::AtTick, Scale::Linear), (End::AtValue, Scale::Linear), (End::AtTick, Scale::Near)] {
                let ruler = DrawnAxis::new(&axis(Unit::Bytes, scale), values.iter().copied(), end, most);
                prop_assert!(ruler.low < ruler.high);
                prop_assert!((1..=most + 3).contains(&ruler.ticks.len()), "{:?}", ruler);
                for value in &values {
                    prop_assert!(ruler.place(*value).is_some());
                }
            }
        }
    }
}
