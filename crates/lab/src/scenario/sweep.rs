//! Swept parameters, whose values differ between the configurations of an experiment.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::spec::PathSpec;

/// A swept parameter and its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// "recv_buffer", or "path.rtt" for a value of the path.
    pub name: String,
    /// Distinct values, at least one.
    pub values: Vec<String>,
}

/// Columns of the results that are not parameters.
pub(super) const RESERVED_COLUMNS: [&str; 6] = ["run", "repetition", "seed", "ok", "marked", "remarks"];

const OF_PATH: &str = "path.";

impl Parameter {
    /// Validates a parameter of a scenario.
    pub(super) fn new(name: String, values: Vec<String>) -> Result<Self, String> {
        let in_sweep = |why: String| Err(format!("[sweep] {name}: {why}"));
        match path_key(&name) {
            Some(key) if !PathSpec::is_key(key) => {
                return in_sweep(format!("the path has no '{key}'; it has {}", PathSpec::KEYS));
            }
            Some(_) => {}
            None if RESERVED_COLUMNS.contains(&name.as_str()) => {
                return in_sweep("results have a column of this name; choose another".to_owned());
            }
            None if !is_variable(&name) => {
                return in_sweep(
                    "a name starts with a small letter and goes on with small letters, digits and '_', so that \
                     a shell knows it as a variable; or it is path.KEY"
                        .to_owned(),
                );
            }
            None => {}
        }
        if values.is_empty() {
            return in_sweep("the list is empty: give it at least one value".to_owned());
        }
        for (index, value) in values.iter().enumerate() {
            if values[..index].contains(value) {
                return in_sweep(format!("'{value}' stands there twice"));
            }
            if value.chars().any(char::is_control) {
                return in_sweep(format!("{value:?} holds a control character"));
            }
            if let Some(Err(error)) = path_key(&name).map(|key| PathSpec::default().set(key, value)) {
                return in_sweep(why(error));
            }
        }
        Ok(Self { name, values })
    }

    /// Returns the name of its environment variable: path_rtt for path.rtt.
    pub(super) fn variable(&self) -> String {
        variable(&self.name)
    }
}

/// Returns the path value that a parameter sets, if any.
pub(super) fn path_key(name: &str) -> Option<&str> {
    name.strip_prefix(OF_PATH)
}

/// Returns the name of a parameter's environment variable.
pub(super) fn variable(name: &str) -> String {
    name.replace('.', "_")
}

fn why(error: LabError) -> String {
    match error {
        LabError::Spec { why, .. } => why,
        other => other.to_string(),
    }
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// Replacement values of a parameter, written NAME=VALUE or NAME=VALUE,VALUE.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetParameter {
    /// The parameter.
    pub name: String,
    /// Its values.
    pub values: Vec<String>,
}

impl FromStr for SetParameter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, values) =
            text.split_once('=').ok_or_else(|| format!("'{text}' has no '=': write NAME=VALUE[,VALUE..]"))?;
        Ok(Self { name: name.to_owned(), values: values.split(',').map(str::to_owned).collect() })
    }
}
