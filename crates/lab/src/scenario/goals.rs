//! Goals: the bounds that the medians of a scenario's runs are held to, by themselves or relative
//! to other runs.

use std::fmt;

use serde::Deserialize;

use super::quantity::{UnitOf, unit_of};
use super::results::Results;
use super::summary::{Group, Spread};
use super::table::{markdown_table, pure};

/// A bound of a value, for each configuration of [`of`](Self::of).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Goal {
    /// The purpose, in words.
    asked: String,
    of: Selector,
    pub(super) value: String,
    /// Whether the largest of the repetitions counts, not their median.
    #[serde(default)]
    largest: bool,
    /// The medians that the value is divided by: the highest of them counts.
    #[serde(default)]
    over: Vec<Selector>,
    /// Whether the lowest of `over` counts.
    #[serde(default)]
    lowest: bool,
    /// The median that is subtracted.
    minus: Option<Selector>,
    /// Combines all configurations into one figure.
    across: Option<Combination>,
    bound: Bound,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Combination {
    Median,
    Largest,
    /// The sum of the values over the sum of `over`.
    Sum,
}

/// Configurations: a run, in whose name `*` stands for any text, and values of swept parameters, as
/// "get size=8G".
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "String")]
struct Selector {
    run: String,
    parameters: Vec<(String, String)>,
}

impl TryFrom<String> for Selector {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let run = words.next().ok_or("a goal needs the name of a run")?.to_owned();
        let parameter = |word: &str| match word.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => Err(format!("'{text}': after a run's name, NAME=VALUE was expected, not '{word}'")),
        };
        Ok(Self { run, parameters: words.map(parameter).collect::<Result<_, _>>()? })
    }
}

impl Selector {
    fn names(&self, run: &str) -> bool {
        matches(&self.run, run)
    }

    fn fixes(&self, parameter: &str) -> bool {
        self.parameters.iter().any(|(name, _)| name == parameter)
    }

    fn selects(&self, group: &Group<'_>) -> bool {
        self.names(group.name)
            && self.parameters.iter().all(|(name, value)| group.parameter(name) == Some(value.as_str()))
    }

    /// Returns the configuration that `group`, selected by `of`, is compared with: equal in all
    /// that neither selector fixes.
    fn counterpart<'g>(
        &self,
        of: &Self,
        group: &Group<'_>,
        groups: &'g [Group<'g>],
    ) -> Option<&'g Group<'g>> {
        groups.iter().find(|other| {
            let is_equal = |(name, value): &(&str, &str)| {
                self.fixes(name) || of.fixes(name) || group.parameter(name).is_none_or(|own| own == *value)
            };
            self.selects(other)
                && (!self.run.contains('*') || other.name == group.name)
                && other.parameters.iter().all(is_equal)
        })
    }
}

/// Returns whether `text` matches a pattern, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            (0..=text.len()).any(|at| text.get(at..).is_some_and(|text| matches(rest, text)))
        }),
    }
}

/// A bound, as "<= 0.6".
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "String")]
struct Bound {
    sign: String,
    limit: f64,
}

impl TryFrom<String> for Bound {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let read = |sign: &str| {
            let limit = text.strip_prefix(sign)?.trim().parse().ok()?;
            Some(Self { sign: sign.to_owned(), limit })
        };
        let bound = ["<=", ">=", "<", ">"].into_iter().find_map(read);
        bound.ok_or_else(|| format!("'{text}' is no bound such as '<= 0.6'"))
    }
}

impl Bound {
    fn is_met_by(&self, value: f64) -> bool {
        match self.sign.as_str() {
            "<=" => value <= self.limit,
            ">=" => value >= self.limit,
            "<" => value < self.limit,
            _ => value > self.limit,
        }
    }
}

/// A goal's figure for one configuration, or for several.
struct GoalFigure {
    of: String,
    value: f64,
    /// The divisor; 1 without `over`.
    over: f64,
    is_marked: bool,
}

impl Goal {
    /// Rejects names of runs and parameters that the scenario does not have.
    pub(super) fn check(&self, runs: &[&str], parameters: &[&str]) -> Result<(), String> {
        for selector in [&self.of].into_iter().chain(&self.over).chain(&self.minus) {
            if !runs.iter().any(|run| selector.names(run)) {
                return Err(format!("[[goal]] '{}': there is no [[run]] '{}'", self.asked, selector.run));
            }
            let unknown = selector.parameters.iter().find(|(name, _)| !parameters.contains(&name.as_str()));
            if let Some((name, _)) = unknown {
                return Err(format!("[[goal]] '{}': [sweep] has no '{name}'", self.asked));
            }
        }
        Ok(())
    }

    /// Returns the figures of the configurations that ran, and whose counterparts ran.
    fn figures(&self, groups: &[Group<'_>]) -> Vec<GoalFigure> {
        let figure = |group: &Group<'_>| {
            let median = |selector: &Selector| {
                Some(self.spread(selector.counterpart(&self.of, group, groups)?)?.median)
            };
            let own = self.spread(group)?;
            let less = self.minus.as_ref().map_or(Some(0.0), median)?;
            let over = self.over.iter().map(median).collect::<Option<Vec<_>>>()?;
            let over = over.into_iter().reduce(if self.lowest { f64::min } else { f64::max });
            Some(GoalFigure {
                of: group.to_string(),
                value: if self.largest { own.max } else { own.median } - less,
                over: over.unwrap_or(1.0),
                is_marked: group.spread(&self.value).is_none(),
            })
        };
        let all: Vec<GoalFigure> =
            groups.iter().filter(|group| self.of.selects(group)).filter_map(figure).collect();
        let Some(combination) = self.across else { return all };
        let ratios = Spread::of(all.iter().map(|figure| figure.value / figure.over));
        let sum = |of: fn(&GoalFigure) -> f64| all.iter().map(of).sum::<f64>();
        let combined = ratios.map(|ratios| {
            let (value, over) = match combination {
                Combination::Median => (ratios.median, 1.0),
                Combination::Largest => (ratios.max, 1.0),
                Combination::Sum => (sum(|figure| figure.value), sum(|figure| figure.over)),
            };
            let of = format!("{combination:?} of {}", all.len()).to_lowercase();
            GoalFigure { of, value, over, is_marked: all.iter().any(|figure| figure.is_marked) }
        });
        combined.into_iter().collect()
    }

    /// Returns the value's spread over executions on a faithful path, or on a deviating one where
    /// there are no others.
    fn spread(&self, group: &Group<'_>) -> Option<Spread> {
        group.spread(&self.value).or_else(|| group.marked_spread(&self.value))
    }

    fn row(&self, figure: &GoalFigure) -> Vec<String> {
        let value = figure.value / figure.over;
        let written = |value: f64| match (self.over.is_empty(), unit_of(&self.value)) {
            (false, _) => format!("{}x", pure(value)),
            (true, unit @ (UnitOf::Bytes | UnitOf::BitsPerSecond)) => {
                let (name, size) = unit.for_reading(value);
                format!("{} {name}", pure(value / size))
            }
            (true, UnitOf::Seconds) => format!("{} s", pure(value)),
            (true, UnitOf::Number) => pure(value),
        };
        let marked = if figure.is_marked { ", marked" } else { "" };
        let met = if self.bound.is_met_by(value) { "yes" } else { "**no**" };
        vec![
            self.asked.clone(),
            figure.of.clone(),
            format!("{} {}", self.bound.sign, written(self.bound.limit)),
            format!("{}{marked}", written(value)),
            met.to_owned(),
        ]
    }
}

/// For example "longhaul size=8G".
impl fmt::Display for Group<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        self.parameters.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
    }
}

/// Formats a table of the goals, with what was measured and whether it meets them, after a blank
/// line; empty if none could be judged.
pub(super) fn markdown(results: &Results) -> String {
    let groups = results.groups();
    let rows = |goal: &Goal| goal.figures(&groups).iter().map(|figure| goal.row(figure)).collect::<Vec<_>>();
    let rows: Vec<_> = results.scenario.evaluation.goals.iter().flat_map(rows).collect();
    if rows.is_empty() {
        return String::new();
    }
    "\n".to_owned() + &markdown_table(&["asked", "of", "goal", "measured", "met"], &rows)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scenario::Scenario;
    use crate::scenario::results::tests::with_values;

    const SCENARIO: &str = r#"
        repeat = 3
        [path]
        [sweep]
        size = ["8G", "1G"]
        [[run]]
        name = "get"
        command = "true"
        [[run]]
        name = "get-4"
        command = "true"
        [[run]]
        name = "curl"
        command = "true"
        [[goal]]
        asked = "time"
        of = "get"
        over = ["curl"]
        value = "time_s"
        bound = "<= 0.5"
        [[goal]]
        asked = "steady"
        of = "get size=8G"
        value = "time_s"
        over = ["get size=1G"]
        largest = true
        bound = "< 11"
        [[goal]]
        asked = "of the best"
        of = "get"
        value = "time_s"
        over = ["get-4", "curl"]
        across = "sum"
        bound = ">= 0.26"
        [[goal]]
        asked = "of the lower"
        of = "get"
        value = "time_s"
        over = ["get-4", "curl"]
        lowest = true
        across = "largest"
        bound = ">= 1"
        [[goal]]
        asked = "more"
        of = "get*"
        value = "time_s"
        minus = "curl"
        across = "median"
        bound = "> 1"
        [[goal]]
        asked = "memory"
        of = "get size=8G"
        value = "max_rss_bytes"
        bound = "<= 1.5e8"
    "#;

    #[test]
    fn medians_are_held_to_bounds_and_to_each_other() {
        let times = |run: &str, size: &str, repetition: u32| match (run, size) {
            ("get", "8G") => Some([8.0, 10.0, 12.0][repetition as usize - 1]),
            ("get", _) => Some(1.0),
            ("get-4", "8G") => Some(40.0),
            ("get-4", _) => Some(2.0),
            ("curl", "8G") => Some(25.0),
            _ => None,
        };
        let values = |run: &str, size: &str, repetition| {
            let bytes = (run == "get").then_some(("max_rss_bytes", 1.08e8));
            times(run, size, repetition).map(|time| ("time_s", time)).into_iter().chain(bytes).collect()
        };
        let text = markdown(&with_values(SCENARIO, values));
        let rows: Vec<_> =
            text.lines().skip(3).map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        let expected = [
            // The run of curl with 1G has no time: nothing is compared with it.
            "| time | get size=8G | <= 0.5x | 0.4x | yes |",
            "| steady | get size=8G | < 11x | 12x | **no** |",
            "| of the best | sum of 1 | >= 0.26x | 0.25x | **no** |",
            "| of the lower | largest of 1 | >= 1x | 0.4x | **no** |",
            "| more | median of 2 | > 1 s | 0 s | **no** |",
            "| memory | get size=8G | <= 150 MB | 108 MB | yes |",
        ];
        assert_eq!(rows, expected, "{text}");
    }

    #[test]
    fn wrong_goals_are_refused() {
        for (goal, why) in [
            ("of = 'gte'\nvalue = 'x'\nbound = '< 1'", "there is no [[run]] 'gte'"),
            ("of = 'get-5*'\nvalue = 'x'\nbound = '< 1'", "there is no [[run]] 'get-5*'"),
            ("of = 'get'\nvalue = 'x'\nover = ['curl seize=1G']\nbound = '< 1'", "[sweep] has no 'seize'"),
            ("of = 'get 8G'\nvalue = 'x'\nbound = '< 1'", "NAME=VALUE was expected, not '8G'"),
            ("of = 'get'\nvalue = 'x'\nbound = 'below 1'", "'below 1' is no bound"),
            ("of = 'get'\nvalue = 'x'", "missing field `bound`"),
        ] {
            let text = format!("{SCENARIO}[[goal]]\nasked = 'x'\n{goal}\n");
            let error = Scenario::parse(&text, Path::new("small.toml"), &[]).unwrap_err();
            assert!(error.contains(why), "{goal}: {error}");
        }
    }
}
