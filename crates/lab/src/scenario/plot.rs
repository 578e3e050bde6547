//! The plots of a scenario's results.

use std::collections::{BTreeMap, HashSet};

use super::file_names::unique;
use super::quantity::unit_of;
use super::raw_toml::{RawPlot, RawPublished};
use super::summary::Group;

/// In `x` and `only` of a plot: the runs as categories.
pub const RUN: &str = "run";

/// A plot of values over a swept parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// The title.
    pub title: String,
    /// The parameter on the horizontal axis, or [`RUN`].
    pub x: String,
    /// The values on the vertical axis, all with one unit.
    pub y: Vec<String>,
    /// Those of `y` that are limits instead of measurements.
    pub references: Vec<String>,
    /// Results of others, drawn beside the measurements.
    pub published: Vec<Published>,
    /// Restricts parameters to these values.
    pub only: Vec<(String, Vec<String>)>,
    /// Words for the legend: by value of `y`, by run, or by parameter and its value ("streams=4").
    pub words: BTreeMap<String, String>,
    /// Label of the horizontal axis.
    pub x_label: String,
    /// Label of the vertical axis.
    pub y_label: String,
    /// Unique name of its files, without extension.
    pub file_stem: String,
}

/// Results of others, such as a paper's.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// The name in the legend.
    pub name: String,
    /// Values of the horizontal axis' parameter as the scenario file writes them, and results in the unit of `y`.
    pub points: Vec<(String, f64)>,
}

/// The parameters that a plot may name, with the values that the scenario file gives them; [`RUN`] with the runs' names.
pub(super) type Choices = [(String, Vec<String>)];

/// Validates the plots of a scenario.
pub(super) fn plots(raw: Vec<RawPlot>, choices: &Choices) -> Result<Vec<Plot>, String> {
    let mut stems = HashSet::new();
    raw.into_iter().map(|plot| Plot::new(plot, choices, &mut stems)).collect()
}

impl Plot {
    /// Returns the file names of its drawings.
    pub fn files(&self) -> [String; 2] {
        ["svg", "png"].map(|extension| format!("{}.{extension}", self.file_stem))
    }

    /// Returns the words of the legend for a value, a run, or a parameter and its value; `usual` if there are none.
    pub fn word(&self, key: &str, usual: impl FnOnce() -> String) -> String {
        self.words.get(key).cloned().unwrap_or_else(usual)
    }

    /// Returns whether a configuration is in the plot: its run and parameters have the values of `only`, or do not apply to it.
    pub fn shows(&self, group: &Group<'_>) -> bool {
        let fits = |name: &str, values: &[String]| {
            let own = if name == RUN { Some(group.name) } else { group.parameter(name) };
            own.is_none_or(|own| values.iter().any(|value| value == own))
        };
        self.only.iter().all(|(name, values)| fits(name, values))
    }

    fn new(raw: RawPlot, choices: &Choices, stems: &mut HashSet<String>) -> Result<Self, String> {
        let wrong = |why: String| Err(format!("[[plot]] '{}': {why}", raw.title));
        let Some((_, places)) = choices.iter().find(|(name, _)| *name == raw.x) else {
            let names: Vec<_> = choices.iter().map(|(name, _)| name.as_str()).collect();
            return wrong(format!("x = '{}' is not swept; there are: {}", raw.x, names.join(", ")));
        };
        let is_choice = |(name, _): &&(String, _)| choices.iter().any(|(own, _)| own == name);
        if let Some((name, _)) = raw.only.0.iter().find(|only| !is_choice(only)) {
            return wrong(format!("only has '{name}', which is neither '{RUN}' nor in [sweep]"));
        }
        let known = |name: &str| choices.iter().find(|(own, _)| own == name).map(|(_, values)| values);
        for (name, values) in &raw.only.0 {
            let unknown = values.iter().find(|value| !known(name).is_some_and(|known| known.contains(value)));
            if let Some(value) = unknown {
                return wrong(format!("only has {name} = '{value}', which does not occur"));
            }
        }
        let published = raw.published.into_iter().map(|published| Published::new(published, places));
        let published = match published.collect() {
            Ok(published) => published,
            Err(why) => return wrong(why),
        };
        if raw.y.is_empty() {
            return wrong("y is empty: name at least one value".to_owned());
        }
        let mut y = raw.y.clone();
        for reference in &raw.reference {
            if !y.contains(reference) {
                y.push(reference.clone());
            }
        }
        if let Some(other) = y.iter().find(|name| unit_of(name) != unit_of(&y[0])) {
            return wrong(format!("'{}' and '{other}' are of different units: make two plots of it", y[0]));
        }
        let file_stem = unique(slug(&raw.title), stems);
        Ok(Self {
            x_label: raw.x_label.unwrap_or_else(|| title_case(&raw.x.replace('_', " "))),
            y_label: raw.y_label.unwrap_or_else(|| title_case(&unit_of(&raw.y[0]).label_of(&raw.y[0]))),
            title: raw.title,
            x: raw.x,
            y,
            references: raw.reference,
            published,
            only: raw.only.0,
            words: raw.words,
            file_stem,
        })
    }
}

impl Published {
    fn new(raw: RawPublished, places: &[String]) -> Result<Self, String> {
        let points: Vec<(String, f64)> = raw.points.into_iter().map(|(x, y)| (x.into(), y)).collect();
        if let Some((x, _)) = points.iter().find(|(x, _)| !places.contains(x)) {
            return Err(format!(
                "published '{}' has a point at '{x}', which is not on the axis: {}",
                raw.name,
                places.join(", ")
            ));
        }
        if let Some((x, y)) = points.iter().find(|(_, y)| !y.is_finite()) {
            return Err(format!("published '{}' has {y} at '{x}': give a number", raw.name));
        }
        Ok(Self { name: raw.name, points })
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
