//! The plots of a scenario's results.

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;

use super::file_names::unique;
use super::quantity::unit_of;
use super::raw_toml;
use super::summary::Group;

/// In `x` and `only` of a plot: the runs as categories.
pub const RUN: &str = "run";

/// A plot of values over a swept parameter.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// The title.
    pub title: String,
    /// The parameter on the horizontal axis, or [`RUN`].
    pub x: String,
    /// The values on the vertical axis, all with one unit.
    pub y: Vec<String>,
    /// Those of `y` that are limits instead of measurements.
    #[serde(default, rename = "reference")]
    pub references: Vec<String>,
    /// Results of others, drawn beside the measurements.
    #[serde(default)]
    pub published: Vec<PublishedResults>,
    /// Restricts parameters to these values.
    #[serde(default, deserialize_with = "raw_toml::sweep")]
    only: Vec<(String, Vec<String>)>,
    /// Words for the legend: by value of `y`, by run, or by parameter and its value ("streams=4").
    #[serde(default)]
    words: BTreeMap<String, String>,
    /// Label of the horizontal axis; by default its parameter.
    #[serde(default)]
    pub x_label: String,
    /// Label of the vertical axis; by default its first value.
    #[serde(default)]
    pub y_label: String,
    /// Unique name of its files, without extension.
    #[serde(skip)]
    pub file_stem: String,
}

/// Results of others, such as a paper's.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedResults {
    /// The name in the legend.
    pub name: String,
    /// Values of the horizontal axis' parameter as the scenario file writes them, and results in
    /// the unit of `y`.
    #[serde(deserialize_with = "raw_toml::points")]
    pub points: Vec<(String, f64)>,
}

/// The parameters that a plot may name, with the values that the scenario file gives them; [`RUN`]
/// with the runs' names.
pub(super) type Choices = [(String, Vec<String>)];

/// Validates and completes the plots of a scenario.
pub(super) fn complete(plots: &mut [Plot], choices: &Choices) -> Result<(), String> {
    let mut stems = HashSet::new();
    plots.iter_mut().try_for_each(|plot| {
        let completed = plot.complete(choices, &mut stems);
        completed.map_err(|why| format!("[[plot]] '{}': {why}", plot.title))
    })
}

impl Plot {
    /// Returns the file names of its drawings.
    pub fn files(&self) -> [String; 2] {
        ["svg", "png"].map(|extension| format!("{}.{extension}", self.file_stem))
    }

    /// Returns the words of the legend for a value, a run, or a parameter and its value; `usual` if
    /// there are none.
    pub fn word(&self, key: &str, usual: impl FnOnce() -> String) -> String {
        self.words.get(key).cloned().unwrap_or_else(usual)
    }

    /// Returns whether a configuration is in the plot: its run and parameters have the values of
    /// `only`, or do not apply to it.
    pub fn shows(&self, group: &Group<'_>) -> bool {
        let fits = |name: &str, values: &[String]| {
            let own = if name == RUN { Some(group.name) } else { group.parameter(name) };
            own.is_none_or(|own| values.iter().any(|value| value == own))
        };
        self.only.iter().all(|(name, values)| fits(name, values))
    }

    fn complete(&mut self, choices: &Choices, stems: &mut HashSet<String>) -> Result<(), String> {
        let known = |name: &str| choices.iter().find(|(own, _)| own == name).map(|(_, values)| values);
        let Some(places) = known(&self.x) else {
            let names: Vec<_> = choices.iter().map(|(name, _)| name.as_str()).collect();
            return Err(format!("x = '{}' is not swept; there are: {}", self.x, names.join(", ")));
        };
        if let Some((name, _)) = self.only.iter().find(|(name, _)| known(name).is_none()) {
            return Err(format!("only has '{name}', which is neither '{RUN}' nor in [sweep]"));
        }
        for (name, values) in &self.only {
            let unknown = values.iter().find(|value| !known(name).is_some_and(|known| known.contains(value)));
            if let Some(value) = unknown {
                return Err(format!("only has {name} = '{value}', which does not occur"));
            }
        }
        self.published.iter().try_for_each(|published| published.check(places))?;
        let Some(first) = self.y.first().cloned() else {
            return Err("y is empty: name at least one value".to_owned());
        };
        for reference in &self.references {
            if !self.y.contains(reference) {
                self.y.push(reference.clone());
            }
        }
        if let Some(other) = self.y.iter().find(|name| unit_of(name) != unit_of(&first)) {
            return Err(format!("'{first}' and '{other}' are of different units: make two plots of it"));
        }
        self.file_stem = unique(slug(&self.title), stems);
        for (label, usual) in [
            (&mut self.x_label, self.x.replace('_', " ")),
            (&mut self.y_label, unit_of(&first).label_of(&first)),
        ] {
            if label.is_empty() {
                *label = title_case(&usual);
            }
        }
        Ok(())
    }
}

impl PublishedResults {
    fn check(&self, places: &[String]) -> Result<(), String> {
        let Self { name, points } = self;
        if let Some((x, _)) = points.iter().find(|(x, _)| !places.contains(x)) {
            let places = places.join(", ");
            return Err(format!(
                "published '{name}' has a point at '{x}', which is not on the axis: {places}"
            ));
        }
        match points.iter().find(|(_, y)| !y.is_finite()) {
            Some((x, y)) => Err(format!("published '{name}' has {y} at '{x}': give a number")),
            None => Ok(()),
        }
    }
}

/// Capitalises a label; keeps path.KEY unchanged.
fn title_case(text: &str) -> String {
    let mut rest = text.chars();
    match rest.next() {
        Some(first) if !text.contains('.') => first.to_uppercase().chain(rest).collect(),
        _ => text.to_owned(),
    }
}

/// Converts a title to a file name: lower-case letters, digits and single '-'.
fn slug(title: &str) -> String {
    const MAX_PLOT_NAME: usize = 60;
    let mut slug = String::new();
    for c in title.chars().map(|c| c.to_ascii_lowercase()) {
        if c.is_ascii_alphanumeric() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.truncate(MAX_PLOT_NAME);
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { "plot".to_owned() } else { slug.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_become_file_names() {
        for (title, name) in [
            ("Throughput, by SO_RCVBUF", "throughput-by-so-rcvbuf"),
            ("../../etc/passwd", "etc-passwd"),
            ("图", "plot"),
        ] {
            assert_eq!(slug(title), name);
        }
        assert!(slug(&"long ".repeat(100)).len() <= 60);
    }
}
