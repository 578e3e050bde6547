//! The options of a request, in groups, and the values of those that have few.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use longhaul_core::pace::Pace;
use longhaul_core::tune::MAX_FIXED_STREAMS;
use longhaul_core::units::Rate;
use serde::{Deserialize, Serialize};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{Object, OneOf, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// The ends of a transfer: URLs, and the local files of a put; or a plan.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Endpoints {
    /// The file's URLs: the first defines the file, the others are mirrors. For a tree, its single
    /// URL.
    #[schema(max_items = 16)]
    pub urls: Vec<String>,
    /// The destination URL of a put.
    pub url: Option<String>,
    /// The files or directories to put.
    #[schema(value_type = Vec<String>)]
    pub paths: Vec<PathBuf>,
    /// The plan of which this is a worker, by the path that it has on each host.
    // Agents of earlier versions refuse requests with fields that they lack.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub plan: Option<PathBuf>,
}

impl Endpoints {
    /// Returns the URLs of either direction.
    pub(crate) fn every_url(&self) -> impl Iterator<Item = &String> {
        self.urls.iter().chain(&self.url)
    }
}

/// The file that a get writes, and what it must contain.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, Args)]
#[serde(default)]
pub struct TargetFile {
    /// The destination: a file, or a directory that exists or ends in `/`. Relative to the
    /// directory of the settings.
    #[schema(value_type = Option<String>)]
    #[arg(
        short,
        long,
        value_name = "PATH",
        help = "Write to a file, or a directory that exists or ends in /; of several operands, a directory [default: the directory of the agent's settings]"
    )]
    pub output: Option<PathBuf>,
    /// The file's name in that directory; by default from the server or the URL.
    #[arg(skip)]
    pub name: Option<String>,
    /// What is done where a file of the name exists; by default a file that `output` names is
    /// replaced, and any other name gets a number.
    #[arg(
        long,
        value_name = "rename|replace|fail",
        hide_possible_values = true,
        help = "Choose what to do where a file of the name exists [default: replace a file that --output names, else rename: set (1).tar]"
    )]
    pub if_exists: Option<IfExistsSetting>,
    /// The expected checksum of the file, such as `sha256:HEX`.
    #[arg(
        long,
        value_name = "ALG:HEX",
        help = "Demand this checksum of the file: md5, sha1, sha224 to sha512, blake2b, blake2b-128 to blake2b-384 or blake3, and the hex digits"
    )]
    pub checksum: Option<String>,
}

/// The headers that the server receives, and the servers that may receive secrets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, Args)]
#[serde(default)]
pub struct AccessOptions {
    /// Further request headers, such as `Accept: text/html`. They are stored encrypted.
    #[arg(long = "header", value_name = "K: V", help = "Add a request header; may be given several times")]
    pub headers: Vec<String>,
    /// The value of the header Cookie.
    #[arg(skip)]
    pub cookies: Option<String>,
    /// The value of the header User-Agent.
    #[arg(skip)]
    pub user_agent: Option<String>,
    /// The value of the header Referer.
    #[arg(skip)]
    pub referrer: Option<String>,
    /// Whether logins and tokens may be sent over http and ftp, where any host on the path can read
    /// them.
    #[arg(
        long,
        help = "Send logins and tokens over http:// and ftp:// too, where any host on the path can read them"
    )]
    pub allow_cleartext: bool,
    /// Whether secrets follow redirects to other servers.
    #[arg(long, help = "Send logins, tokens and secret headers to the servers of redirects, too")]
    pub location_trusted: bool,
    /// A bearer token for the server.
    #[arg(skip)]
    pub token: Option<String>,
}

/// How the bytes of a transfer move.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, Args)]
#[serde(default)]
pub struct TuningOptions {
    /// The number of connections.
    #[arg(long, value_name = "auto|N", default_value = "auto", help = "Use this many connections")]
    pub streams: StreamsSetting,
    /// The requested pacing of the server: `auto`, `off` or a rate such as `860Mbit`.
    #[arg(long, value_name = "auto|off|RATE", value_parser = |text: &str| Pace::with_unit(text).map(Pace::option), help = "Set how evenly, and how fast, the server is to send")]
    pub pace: Option<String>,
    /// The way in which the file is written.
    #[arg(skip)]
    pub writer: WriterSetting,
    /// The rate limit of this transfer, in bits per second.
    #[schema(minimum = 8)]
    #[arg(long = "limit", value_name = "RATE", value_parser = |text: &str| Rate::with_unit(text).map(Rate::as_bits_per_sec), help = "Set the highest rate, as 500Mbit or 60MB/s")]
    pub limit_bps: Option<u64>,
}

/// The place of a transfer in the queue, and in time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, Args)]
#[serde(default)]
pub struct QueueOptions {
    /// Transfers of higher priority run sooner.
    #[schema(minimum = -1_000_000, maximum = 1_000_000)]
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true,
        help = "Set the priority: the higher, the sooner it runs"
    )]
    pub priority: i64,
    /// The page that contains the link.
    #[arg(skip)]
    pub page_url: Option<String>,
    /// The scheduled time, in seconds since 1970.
    #[arg(long, value_name = "TIME", help = "Run at this time, in seconds since 1970")]
    pub at: Option<i64>,
    /// Whether the transfer waits until it is resumed.
    #[arg(long, help = "Wait until it is resumed")]
    pub paused: bool,
}

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
