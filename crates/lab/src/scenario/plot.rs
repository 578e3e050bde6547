//! The plots of a scenario's results.

use std::collections::HashSet;

use super::file_names::unique;
use super::quantity::unit_of;
use super::raw_toml::RawPlot;
use super::summary::Group;
use super::sweep::Parameter;

/// As `x` of a plot: the runs as categories.
pub const RUN: &str = "run";

/// A plot of values over a swept parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plot {
    /// The title.
    pub title: String,
    /// The parameter on the horizontal axis, or [`RUN`].
    pub x: String,
    /// The values on the vertical axis, all with one unit.
    pub y: Vec<String>,
    /// Those of `y` that are limits instead of measurements.
    pub references: Vec<String>,
    /// Restricts parameters to these values.
    pub only: Vec<(String, Vec<String>)>,
    /// Label of the horizontal axis.
    pub x_label: String,
    /// Label of the vertical axis.
    pub y_label: String,
    /// Unique name of its files, without extension.
    pub file_stem: String,
}

/// Validates the plots of a scenario.
pub(super) fn plots(raw: Vec<RawPlot>, sweep: &[Parameter]) -> Result<Vec<Plot>, String> {
    let mut stems = HashSet::new();
    raw.into_iter().map(|plot| Plot::new(plot, sweep, &mut stems)).collect()
}

impl Plot {
    /// Returns the file names of its drawings.
    pub fn files(&self) -> [String; 2] {
        ["svg", "png"].map(|extension| format!("{}.{extension}", self.file_stem))
    }

    /// Returns whether a configuration is in the plot: its parameters have the values of `only`, or do not apply to it.
    pub fn shows(&self, group: &Group<'_>) -> bool {
        let fits = |name: &str, values: &[String]| {
            group.parameter(name).is_none_or(|own| values.iter().any(|value| value == own))
        };
        self.only.iter().all(|(name, values)| fits(name, values))
    }

    fn new(raw: RawPlot, sweep: &[Parameter], stems: &mut HashSet<String>) -> Result<Self, String> {
        let wrong = |why: String| Err(format!("[[plot]] '{}': {why}", raw.title));
        if raw.x != RUN && !sweep.iter().any(|parameter| parameter.name == raw.x) {
            let mut names: Vec<_> = sweep.iter().map(|parameter| parameter.name.as_str()).collect();
            names.push(RUN);
            return wrong(format!("x = '{}' is not swept; there are: {}", raw.x, names.join(", ")));
        }
        let is_swept = |(name, _): &&(String, _)| sweep.iter().any(|parameter| parameter.name == *name);
        if let Some((name, _)) = raw.only.0.iter().find(|only| !is_swept(only)) {
            return wrong(format!("only has '{name}', which [sweep] does not have"));
        }
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
            only: raw.only.0,
            file_stem,
        })
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
