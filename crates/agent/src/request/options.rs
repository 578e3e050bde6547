//! The options of a request that have few values.

use std::str::FromStr;

use clap::ValueEnum;
use longhaul_core::tune::MAX_FIXED_STREAMS;
use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{Object, OneOf, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// The number of connections: `"auto"` or a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StreamsSetting {
    /// Chosen automatically.
    #[default]
    #[serde(with = "auto")]
    Auto,
    /// A fixed number from 1 to 256.
    Fixed(usize),
}

impl FromStr for StreamsSetting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "auto" => Ok(Self::Auto),
            Ok(n @ 1..=MAX_FIXED_STREAMS) => Ok(Self::Fixed(n)),
            _ => Err(format!("write auto, or a number from 1 to {MAX_FIXED_STREAMS}")),
        }
    }
}

impl PartialSchema for StreamsSetting {
    fn schema() -> RefOr<Schema> {
        let auto = Object::builder().schema_type(Type::String).enum_values(Some(["auto"]));
        let fixed =
            Object::builder().schema_type(Type::Integer).minimum(Some(1)).maximum(Some(MAX_FIXED_STREAMS));
        OneOf::builder().item(auto).item(fixed).into()
    }
}

impl ToSchema for StreamsSetting {}

mod auto {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str("auto")
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<(), D::Error> {
        match &String::deserialize(from)?[..] {
            "auto" => Ok(()),
            _ => Err(D::Error::custom("write \"auto\" or a number")),
        }
    }
}

/// The way in which a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WriterSetting {
    /// Direct I/O if the file system supports it, else buffered.
    #[default]
    Auto,
    /// O_DIRECT, bypassing the page cache.
    Direct,
    /// A shared mapping.
    Mmap,
    /// Through the page cache.
    Buffered,
}

/// What is done where a file of the name exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum IfExistsSetting {
    /// The new file gets a number before its extension, as in `set (1).tar`.
    Rename,
    /// The file is replaced once the new one is complete.
    Replace,
    /// The transfer fails.
    Fail,
}
