//! Options of transfers that have an equivalent in Longhaul.

use std::path::{Component, Path};

use serde_json::{Map, Value, json};

use super::{Gid, RpcError};
use crate::checksum::{Algorithm, Checksum};
use crate::units::Rate;

/// The supported options. All other options of aria2 are ignored, because its clients send many.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Aria2Options {
    /// The place of the file.
    pub place: PlaceOptions,
    /// The contents of requests.
    pub requests: RequestOptions,
    /// The options of all transfers together.
    pub global: GlobalOptions,
    /// The number of streams (`split`).
    pub split: Option<usize>,
    /// The highest rate of the transfer (`max-download-limit`); zero for no limit.
    pub limit: Option<Rate>,
    /// The file's digest (`checksum`).
    pub checksum: Option<Checksum>,
    /// Whether the transfer is added as paused (`pause`).
    pub pause: bool,
    /// The identifier that the transfer is to have (`gid`).
    pub gid: Option<Gid>,
}

/// The place of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlaceOptions {
    /// The directory of the file (`dir`).
    pub dir: Option<String>,
    /// The file's name, or its path below the directory (`out`).
    pub out: Option<String>,
    /// Whether an existing file is replaced (`allow-overwrite`; aria2's default is false).
    pub overwrites: Option<bool>,
    /// Whether the file gets another name where one of its name exists (`auto-file-renaming`;
    /// aria2's default is true).
    pub renames: Option<bool>,
}

/// The contents of requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestOptions {
    /// The headers, `Name: value` each (`header`).
    pub headers: Vec<String>,
    /// The URL of the page that links to the file (`referer`; `*` for none).
    pub referer: Option<String>,
    /// The User-Agent (`user-agent`).
    pub user_agent: Option<String>,
}

/// The options of all transfers together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GlobalOptions {
    /// The highest total rate (`max-overall-download-limit`); zero for no limit.
    pub limit: Option<Rate>,
    /// The largest number of concurrent transfers (`max-concurrent-downloads`).
    pub concurrent: Option<usize>,
}

/// The largest accepted value of `split`: aria2's limit of connections to one server.
const MAX_SPLIT: usize = 16;

impl Aria2Options {
    /// Parses an object of options; null is none.
    ///
    /// # Errors
    /// [`RpcError::Option`] for an invalid value.
    pub fn parse(object: &Map<String, Value>) -> Result<Self, RpcError> {
        let mut options = Self::default();
        for (name, value) in object.iter().filter(|(_, value)| !value.is_null()) {
            let set = options.set(name, value);
            set.map_err(|expected| RpcError::Option { name: name.clone(), expected })?;
        }
        Ok(options)
    }

    /// Sets an option; returns what is expected instead of an invalid value.
    fn set(&mut self, name: &str, value: &Value) -> Result<(), &'static str> {
        match name {
            "dir" => self.place.dir = text(value)?,
            "out" => self.place.out = text(value)?.map(path_below).transpose()?,
            "split" => self.split = Some(number(value)?.min(MAX_SPLIT)),
            "header" => self.requests.headers = headers(value)?,
            "referer" => self.requests.referer = text(value)?.filter(|page| page != "*"),
            "user-agent" => self.requests.user_agent = text(value)?,
            "max-download-limit" => self.limit = Some(rate(value)?),
            "max-overall-download-limit" => self.global.limit = Some(rate(value)?),
            "max-concurrent-downloads" => self.global.concurrent = Some(number(value)?),
            "checksum" => self.checksum = Some(checksum(value)?),
            "pause" => self.pause = flag(value)?,
            "gid" => self.gid = Some(gid(value)?),
            "allow-overwrite" => self.place.overwrites = Some(flag(value)?),
            "auto-file-renaming" => self.place.renames = Some(flag(value)?),
            _ => {}
        }
        Ok(())
    }

    /// Returns the options in aria2's form: an object of strings.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        let mut put = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                object.insert(name.to_owned(), json!(value));
            }
        };
        put("dir", self.place.dir.clone());
        put("out", self.place.out.clone());
        put("split", self.split.map(|split| split.to_string()));
        put("referer", self.requests.referer.clone());
        put("user-agent", self.requests.user_agent.clone());
        put("max-download-limit", self.limit.map(|rate| rate.as_bytes_per_sec().to_string()));
        put("max-overall-download-limit", self.global.limit.map(|rate| rate.as_bytes_per_sec().to_string()));
        put("max-concurrent-downloads", self.global.concurrent.map(|count| count.to_string()));
        put("checksum", self.checksum.as_ref().map(|sum| format!("{}={}", sum.algorithm, sum.hex())));
        put("pause", Some(self.pause.to_string()));
        put("gid", self.gid.map(|gid| gid.to_string()));
        put("allow-overwrite", self.place.overwrites.map(|overwrites| overwrites.to_string()));
        put("auto-file-renaming", self.place.renames.map(|renames| renames.to_string()));
        Value::Object(object)
    }
}

fn text(value: &Value) -> Result<Option<String>, &'static str> {
    let text = value.as_str().ok_or("a string")?;
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// Checks that a path stays below the directory.
fn path_below(path: String) -> Result<String, &'static str> {
    let is_below = Path::new(&path).components().all(|part| matches!(part, Component::Normal(_)));
    if is_below && !path.ends_with('/') { Ok(path) } else { Err("a name, or a path below dir without '..',") }
}

fn gid(value: &Value) -> Result<Gid, &'static str> {
    let gid = value.as_str().and_then(|text| text.parse().ok()).filter(|gid: &Gid| gid.number() != 0);
    gid.ok_or("16 hexadecimal digits, not all of them 0,")
}

/// Returns the option's value as text: clients also send numbers and booleans without quotes.
fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn number(value: &Value) -> Result<usize, &'static str> {
    bare(value).parse().ok().filter(|number| *number > 0).ok_or("a number of at least 1")
}

fn flag(value: &Value) -> Result<bool, &'static str> {
    bare(value).parse().map_err(|_| "true or false")
}

fn headers(value: &Value) -> Result<Vec<String>, &'static str> {
    let lines: Option<Vec<&str>> = match value {
        Value::String(lines) => Some(lines.split('\n').filter(|line| !line.is_empty()).collect()),
        Value::Array(lines) => lines.iter().map(Value::as_str).collect(),
        _ => None,
    };
    let is_header = |line: &&str| line.contains(':') && !line.contains(char::is_control);
    let lines = lines.filter(|lines| lines.iter().all(is_header));
    let lines = lines.ok_or("'Name: value', or an array of such")?;
    Ok(lines.into_iter().map(str::to_owned).collect())
}

/// Parses bytes per second, with K for 1024 and M for 1024 K.
fn rate(value: &Value) -> Result<Rate, &'static str> {
    let text = bare(value);
    let (digits, factor) = match text.strip_suffix(['k', 'K', 'm', 'M']) {
        Some(digits) if text.ends_with(['k', 'K']) => (digits, 1024),
        Some(digits) => (digits, 1024 * 1024),
        None => (text.as_str(), 1),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    // The rate in bits per second must fit into a u64.
    let bytes = bytes.filter(|bytes| bytes.checked_mul(8).is_some());
    bytes.map(Rate::bytes_per_sec).ok_or("bytes a second, such as 1048576, 1024K or 1M")
}

fn checksum(value: &Value) -> Result<Checksum, &'static str> {
    let parsed = value.as_str().and_then(|text| {
        let (algorithm, hex) = text.split_once('=')?;
        Checksum::from_hex(Algorithm::named(algorithm)?, hex)
    });
    parsed.ok_or("ALGORITHM=HEX, such as sha-256=0192ba…")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &Value) -> Result<Aria2Options, RpcError> {
        Aria2Options::parse(options.as_object().unwrap())
    }

    #[test]
    fn options_are_parsed_in_all_forms_and_unknown_ones_ignored() {
        let sha1 = "da39a3ee5e6b4b0d3255bfef95601890afd80709";
        let options = parse(&json!({
            "dir": "/d", "out": "o", "split": "4", "header": ["A: b", "C: d"], "referer": "http://p/",
            "user-agent": "u", "max-download-limit": "100K", "checksum": format!("sha-1={sha1}"), "pause": "true",
            "bt-seed-unverified": "true", "gid": "00000000000000ff", "allow-overwrite": "true", "auto-file-renaming": false
        }))
        .unwrap();
        let texts =
            [&options.place.dir, &options.place.out, &options.requests.referer].map(|text| text.as_deref());
        assert_eq!(texts, [Some("/d"), Some("o"), Some("http://p/")]);
        assert_eq!((options.split, options.requests.headers.len(), options.pause), (Some(4), 2, true));
        let chosen = (options.gid.map(Gid::number), options.place.overwrites, options.place.renames);
        assert_eq!(chosen, (Some(255), Some(true), Some(false)));
        assert_eq!(options.limit, Some(Rate::bytes_per_sec(102_400)));
        assert_eq!(options.checksum.as_ref().map(Checksum::hex), Some(sha1));
        let shown = options.to_json();
        assert_eq!((&shown["split"], &shown["max-download-limit"]), (&json!("4"), &json!("102400")));
        assert_eq!(shown.get("header"), None, "headers may hold secrets");
        assert_eq!(parse(&shown).unwrap().checksum, options.checksum);
        // Values without quotes, and several headers in one text.
        let given = json!({"split": 99, "pause": false, "header": "A: b\nC: d", "referer": "*", "out": "", "dir": null,
            "max-overall-download-limit": 0, "max-concurrent-downloads": 3});
        let options = parse(&given).unwrap();
        assert_eq!(
            (options.split, options.requests.headers.len(), options.global.concurrent),
            (Some(16), 2, Some(3))
        );
        let unlimited = Some(Rate::bytes_per_sec(0));
        let texts = (options.requests.referer, options.place.out, options.place.dir);
        assert_eq!((texts, options.global.limit), ((None, None, None), unlimited));
    }

    #[test]
    fn wrong_values_name_the_option() {
        for (option, value) in [
            ("dir", json!(1)),
            ("split", json!("0")),
            ("split", json!("x")),
            ("header", json!(["no colon"])),
            ("header", json!(["A: b\r\nHost: c"])),
            ("header", json!([1])),
            ("max-download-limit", json!("fast")),
            ("max-download-limit", json!("99999999999999999999")),
            ("max-download-limit", json!("18446744073709551615")),
            ("max-download-limit", json!("é")),
            ("checksum", json!("sha-1=00")),
            ("checksum", json!("crc=00")),
            ("pause", json!("perhaps")),
            ("gid", json!("0000000000000000")),
            ("gid", json!("ff")),
            ("allow-overwrite", json!("always")),
            ("out", json!("../../.bashrc")),
            ("out", json!("/etc/cron.d/job")),
        ] {
            let error = parse(&json!({option: value})).unwrap_err();
            assert!(matches!(&error, RpcError::Option { name, .. } if name == option), "{value}: {error}");
        }
    }
}
