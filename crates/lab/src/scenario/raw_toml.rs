//! The structure of a scenario's TOML before validation.

use std::collections::BTreeMap;
use std::fmt;
use std::num::{NonZeroU16, NonZeroU32};

use longhaul_core::units::Rtt;
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};

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
    pub(super) path: RawPath,
    #[serde(alias = "far")]
    pub(super) server: Option<ScenarioServer>,
    #[serde(default)]
    pub(super) sweep: RawSweep,
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
    #[serde(default)]
    pub(super) path: RawRunPath,
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

/// The path; values are set by name and text through `PathSpec::set`, which alone defines them.
pub(super) struct RawPath(pub(super) PathSpec);

impl<'de> Deserialize<'de> for RawPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Values;
        impl<'de> Visitor<'de> for Values {
            type Value = RawPath;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table with the path's values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawPath, A::Error> {
                let mut path = PathSpec::default();
                while let Some(key) = map.next_key::<String>()? {
                    map.next_value_seed(PathValue { path: &mut path, key: &key })?;
                }
                Ok(RawPath(path))
            }
        }
        deserializer.deserialize_map(Values)
    }
}

/// Sets a path value while it is deserialised, so that errors include the line.
struct PathValue<'a> {
    path: &'a mut PathSpec,
    key: &'a str,
}

impl<'de> DeserializeSeed<'de> for PathValue<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let text: String = Scalar::deserialize(deserializer)?.into();
        self.path.set(self.key, &text).map_err(de::Error::custom)
    }
}

/// Path values of one run, validated individually.
#[derive(Default)]
pub(super) struct RawRunPath(pub(super) Vec<(String, String)>);

impl<'de> Deserialize<'de> for RawRunPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Values;
        impl<'de> Visitor<'de> for Values {
            type Value = RawRunPath;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table with values of the path")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawRunPath, A::Error> {
                let mut values = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, Scalar>()? {
                    let text = String::from(value);
                    PathSpec::default().set(&key, &text).map_err(de::Error::custom)?;
                    values.push((key, text));
                }
                Ok(RawRunPath(values))
            }
        }
        deserializer.deserialize_map(Values)
    }
}

/// The swept parameters, in the order of the file.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RawSweep(pub(super) Vec<(String, Vec<String>)>);

impl<'de> Deserialize<'de> for RawSweep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Lists;
        impl<'de> Visitor<'de> for Lists {
            type Value = RawSweep;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table with a list of values for each parameter")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawSweep, A::Error> {
                let mut parameters = Vec::new();
                while let Some((name, values)) = map.next_entry::<String, Vec<Scalar>>()? {
                    parameters.push((name, values.into_iter().map(String::from).collect()));
                }
                Ok(RawSweep(parameters))
            }
        }
        deserializer.deserialize_map(Lists)
    }
}
