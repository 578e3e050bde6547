//! Medians and spreads over repetitions.

use super::outcome::RunResult;
use super::results::Results;

/// Median, least and largest of a quantity over repetitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The middle value; the mean of the two middle ones where their number is even.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Sums up `values`; `None` where there are none.
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

/// A configuration's repetitions.
#[derive(Debug, Clone, PartialEq)]
pub struct Group<'a> {
    /// The run's name.
    pub name: &'a str,
    /// The swept parameters that concern it, in the scenario's order.
    pub parameters: Vec<(&'a str, &'a str)>,
    /// Its results, those of failures among them.
    pub results: Vec<&'a RunResult>,
}

impl Group<'_> {
    /// Returns the value of a parameter; `None` where it does not concern the run.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(own, _)| *own == name).map(|(_, value)| *value)
    }

    /// Sums up a value over the repetitions that succeeded on the path that was asked for.
    pub fn spread(&self, value: &str) -> Option<Spread> {
        let good = self.results.iter().filter(|result| result.succeeded() && !result.is_marked());
        Spread::of(good.filter_map(|result| result.value(value)))
    }

    /// Sums up a value over the repetitions that succeeded on another path than was asked for.
    pub fn marked_spread(&self, value: &str) -> Option<Spread> {
        let marked = self.results.iter().filter(|result| result.is_marked());
        Spread::of(marked.filter_map(|result| result.value(value)))
    }

    pub(super) fn succeeded(&self) -> usize {
        self.results.iter().filter(|result| result.succeeded()).count()
    }

    /// Counts those that succeeded, but not on the path that was asked for.
    pub(super) fn marked(&self) -> usize {
        self.results.iter().filter(|result| result.is_marked()).count()
    }

    /// Counts those that succeeded, but with something to remark.
    pub(super) fn remarked(&self) -> usize {
        self.results.iter().filter(|result| result.succeeded() && !result.remarks.is_empty()).count()
    }
}

impl Results {
    /// Groups the results by run and parameters, in the order of the scenario.
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
        // By run first, so that a run's rows stand together; values in the order written.
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
