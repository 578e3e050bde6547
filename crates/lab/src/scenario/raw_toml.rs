//! The structure of a scenario's TOML before validation.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::num::{NonZeroU16, NonZeroU32};

use longhaul_core::units::Rtt;
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};

use crate::error::LabError;
use crate::spec::PathSpec;

use super::goals::Goal;
use super::{Plot, ScenarioServer};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawScenario {
    pub(super) name: Option<String>,
    pub(super) seeds: Option<Vec<u64>>,
    #[serde(default = "once")]
    pub(super) repeat: NonZeroU32,
    pub(super) prepare: Option<String>,
    pub(super) cleanup: Option<String>,
    #[serde(default)]
    pub(super) needs: BTreeMap<String, String>,
    #[serde(deserialize_with = "path")]
    pub(super) path: PathSpec,
    #[serde(alias = "far")]
    pub(super) server: Option<ScenarioServer>,
    #[serde(default, deserialize_with = "sweep")]
    pub(super) sweep: Vec<(String, Vec<String>)>,
    #[serde(default)]
    pub(super) each: RawEach,
    #[serde(default)]
    pub(super) run: Vec<RawRun>,
    #[serde(default)]
    pub(super) plot: Vec<Plot>,
    #[serde(default)]
    pub(super) table: RawTable,
    #[serde(default)]
    pub(super) goal: Vec<Goal>,
}

/// What applies to the runs that do not state it.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEach {
    pub(super) setup: Option<String>,
    pub(super) cleanup: Option<String>,
    #[serde(default, deserialize_with = "time")]
    pub(super) timeout: Option<Rtt>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRun {
    pub(super) name: String,
    pub(super) command: String,
    pub(super) repeat: Option<NonZeroU32>,
    /// A duration, written like an RTT.
    #[serde(default, deserialize_with = "time")]
    pub(super) timeout: Option<Rtt>,
    #[serde(default, deserialize_with = "run_path")]
    pub(super) path: Vec<(String, String)>,
    pub(super) sweep: Option<Vec<String>>,
    #[serde(alias = "far")]
    pub(super) server: Option<String>,
    pub(super) port: Option<NonZeroU16>,
    pub(super) setup: Option<String>,
    pub(super) cleanup: Option<String>,
    #[serde(default)]
    pub(super) needs: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTable {
    pub(super) columns: Option<Vec<String>>,
}

fn once() -> NonZeroU32 {
    NonZeroU32::MIN
}

/// Parses a duration; the TOML reader adds the line to errors.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Rtt>, D::Error> {
    String::deserialize(deserializer)?.parse().map(Some).map_err(de::Error::custom)
}

/// A string, number or boolean, as text.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string, a number, or true or false")]
pub(super) enum Scalar {
    Text(String),
    Whole(i64),
    Number(f64),
    Truth(bool),
}

impl From<Scalar> for String {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Text(text) => text,
            Scalar::Whole(number) => number.to_string(),
            Scalar::Number(number) => number.to_string(),
            Scalar::Truth(truth) => truth.to_string(),
        }
    }
}

/// Parses points whose places may be of any scalar type.
pub(super) fn points<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, f64)>, D::Error> {
    let points = Vec::<(Scalar, f64)>::deserialize(deserializer)?;
    Ok(points.into_iter().map(|(x, y)| (x.into(), y)).collect())
}

/// Reads a table in the order of the file; the errors of `each`, which takes the name and the value
/// of an entry, get the line of the value.
fn entries<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
    expected: &'static str,
    each: impl FnMut(String, V) -> Result<(), LabError>,
) -> Result<(), D::Error> {
    struct Table<V, F>(&'static str, F, PhantomData<V>);

    impl<'de, V: Deserialize<'de>, F: FnMut(String, V) -> Result<(), LabError>> Visitor<'de> for Table<V, F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
            while let Some(name) = map.next_key()? {
                map.next_value_seed(Entry(name, &mut self.1, PhantomData))?;
            }
            Ok(())
        }
    }

    struct Entry<'a, V, F>(String, &'a mut F, PhantomData<V>);

    impl<'de, V: Deserialize<'de>, F: FnMut(String, V) -> Result<(), LabError>> DeserializeSeed<'de>
        for Entry<'_, V, F>
    {
        type Value = ();

        fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
            (self.1)(self.0, V::deserialize(deserializer)?).map_err(de::Error::custom)
        }
    }

    deserializer.deserialize_map(Table(expected, each, PhantomData))
}

/// Reads the path; values are set by name and text through `PathSpec::set`, which alone defines
/// them.
fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathSpec, D::Error> {
    let mut path = PathSpec::default();
    entries(deserializer, "a table with the path's values", |key, value: Scalar| {
        path.set(&key, &String::from(value))
    })?;
    Ok(path)
}

/// Reads the path values of one run, validated individually.
fn run_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, String)>, D::Error> {
    let mut values = Vec::new();
    entries(deserializer, "a table with values of the path", |key, value: Scalar| {
        let text = String::from(value);
        PathSpec::default().set(&key, &text)?;
        values.push((key, text));
        Ok(())
    })?;
    Ok(values)
}

/// Reads swept parameters, each with a list of values.
pub(super) fn sweep<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<(String, Vec<String>)>, D::Error> {
    let mut parameters = Vec::new();
    entries(
        deserializer,
        "a table with a list of values for each parameter",
        |name, values: Vec<Scalar>| {
            parameters.push((name, values.into_iter().map(String::from).collect()));
            Ok(())
        },
    )?;
    Ok(parameters)
}
