//! Medians and spreads over repetitions.

use super::outcome::RunResult;
use super::results::Results;

/// Median, minimum and maximum over repetitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The median; the mean of the two middle values if their number is even.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

impl Spread {
    /// Computes the spread of `values`; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Self { median, min, max })
    }
}

/// The repetitions of a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Group<'a> {
    /// The run's name.
    pub name: &'a str,
    /// The swept parameters that apply to the run, in the scenario's order.
    pub parameters: Vec<(&'a str, &'a str)>,
    /// The results, failures included.
    pub results: Vec<&'a RunResult>,
}

impl Group<'_> {
    /// Returns the value of a parameter; `None` if it does not apply to the run.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(own, _)| *own == name).map(|(_, value)| *value)
    }

    /// Returns the spread of a value over successful repetitions on a faithful path.
    pub fn spread(&self, value: &str) -> Option<Spread> {
        let good = self.results.iter().filter(|result| result.succeeded() && !result.is_marked());
        Spread::of(good.filter_map(|result| result.value(value)))
    }

    /// Returns the spread of a value over successful repetitions on a deviating path.
    pub fn marked_spread(&self, value: &str) -> Option<Spread> {
        let marked = self.results.iter().filter(|result| result.is_marked());
        Spread::of(marked.filter_map(|result| result.value(value)))
    }

    pub(super) fn succeeded(&self) -> usize {
        self.results.iter().filter(|result| result.succeeded()).count()
    }

    /// Counts successful repetitions on a deviating path.
    pub(super) fn marked(&self) -> usize {
        self.results.iter().filter(|result| result.is_marked()).count()
    }

    /// Counts successful repetitions with remarks.
    pub(super) fn remarked(&self) -> usize {
        self.results.iter().filter(|result| result.succeeded() && !result.remarks.is_empty()).count()
    }
}

impl Results {
    /// Groups the results by run and parameters, in the scenario's order.
    pub fn groups(&self) -> Vec<Group<'_>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for result in &self.runs {
            match groups
                .iter_mut()
                .find(|group| group.name == result.name && group.results[0].parameters == result.parameters)
            {
                Some(group) => group.results.push(result),
                None => groups.push(self.group(result)),
            }
        }
        // Sorts by run first; values keep the order of the file.
        groups.sort_by_cached_key(|group| {
            let run = self.scenario.runs.iter().position(|run| run.name == group.name);
            let values = self.scenario.sweep.iter().map(|parameter| {
                let own = group.parameter(&parameter.name);
                parameter.values.iter().position(|value| own == Some(value))
            });
            (run, values.collect::<Vec<_>>())
        });
        groups
    }

    fn group<'a>(&'a self, result: &'a RunResult) -> Group<'a> {
        let parameters = self.scenario.sweep.iter().filter_map(|parameter| {
            let (name, value) = result.parameters.get_key_value(&parameter.name)?;
            Some((name.as_str(), value.as_str()))
        });
        Group { name: &result.name, parameters: parameters.collect(), results: vec![result] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_right_for_odd_even_and_none() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of([]), None);
    }
}
