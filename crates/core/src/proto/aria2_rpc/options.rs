//! Options of transfers that have an equivalent in Longhaul.

use std::path::{Component, Path};

use serde_json::{Map, Value, json};

use super::{Gid, RpcError};
use crate::checksum::{Algorithm, Checksum};
use crate::units::Rate;

/// The supported options. All other options of aria2 are ignored, because its clients send many.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobOptions {
    /// The directory of the file (`dir`).
    pub dir: Option<String>,
    /// The file's name, or its path below the directory (`out`).
    pub out: Option<String>,
    /// The number of streams (`split`).
    pub split: Option<usize>,
    /// Headers of the requests, `Name: value` each (`header`).
    pub headers: Vec<String>,
    /// The URL of the page that links to the file (`referer`; `*` for none).
    pub referer: Option<String>,
    /// The User-Agent of the requests (`user-agent`).
    pub user_agent: Option<String>,
    /// The highest rate of the transfer (`max-download-limit`); zero for no limit.
    pub limit: Option<Rate>,
    /// The highest total rate (`max-overall-download-limit`); zero for no limit.
    pub overall_limit: Option<Rate>,
    /// The largest number of concurrent transfers (`max-concurrent-downloads`).
    pub concurrent: Option<usize>,
    /// The file's digest (`checksum`).
    pub checksum: Option<Checksum>,
    /// Whether the transfer is added as paused (`pause`).
    pub pause: bool,
    /// The identifier that the transfer is to have (`gid`).
    pub gid: Option<Gid>,
    /// Whether an existing file is replaced (`allow-overwrite`; aria2's default is false).
    pub overwrites: Option<bool>,
    /// Whether the file gets another name where one of its name exists (`auto-file-renaming`; aria2's default is true).
    pub renames: Option<bool>,
}

/// The largest accepted value of `split`: aria2's limit of connections to one server.
const MAX_SPLIT: usize = 16;

impl JobOptions {
    /// Parses an object of options; null is none.
    ///
    /// # Errors
    /// [`RpcError::Option`] for an invalid value.
    pub fn parse(object: &Map<String, Value>) -> Result<Self, RpcError> {
        let mut options = Self::default();
        for (name, value) in object.iter().filter(|(_, value)| !value.is_null()) {
            options.set(name, value)?;
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &Value) -> Result<(), RpcError> {
        match name {
            "dir" => self.dir = text("dir", value)?,
            "out" => self.out = text("out", value)?.map(path_below).transpose()?,
            "split" => self.split = Some(number("split", value)?.min(MAX_SPLIT)),
            "header" => self.headers = headers(value)?,
            "referer" => self.referer = text("referer", value)?.filter(|page| page != "*"),
            "user-agent" => self.user_agent = text("user-agent", value)?,
            "max-download-limit" => self.limit = Some(rate("max-download-limit", value)?),
            "max-overall-download-limit" => {
                self.overall_limit = Some(rate("max-overall-download-limit", value)?)
            }
            "max-concurrent-downloads" => self.concurrent = Some(number("max-concurrent-downloads", value)?),
            "checksum" => self.checksum = Some(checksum(value)?),
            "pause" => self.pause = flag("pause", value)?,
            "gid" => self.gid = Some(gid(value)?),
            "allow-overwrite" => self.overwrites = Some(flag("allow-overwrite", value)?),
            "auto-file-renaming" => self.renames = Some(flag("auto-file-renaming", value)?),
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
        put("dir", self.dir.clone());
        put("out", self.out.clone());
        put("split", self.split.map(|split| split.to_string()));
        put("referer", self.referer.clone());
        put("user-agent", self.user_agent.clone());
        put("max-download-limit", self.limit.map(|rate| rate.as_bytes_per_sec().to_string()));
        put("max-overall-download-limit", self.overall_limit.map(|rate| rate.as_bytes_per_sec().to_string()));
        put("max-concurrent-downloads", self.concurrent.map(|count| count.to_string()));
        put("checksum", self.checksum.as_ref().map(|sum| format!("{}={}", sum.algorithm, sum.hex())));
        put("pause", Some(self.pause.to_string()));
        put("gid", self.gid.map(|gid| gid.to_string()));
        put("allow-overwrite", self.overwrites.map(|overwrites| overwrites.to_string()));
        put("auto-file-renaming", self.renames.map(|renames| renames.to_string()));
        Value::Object(object)
    }
}

fn text(name: &'static str, value: &Value) -> Result<Option<String>, RpcError> {
    let text = value.as_str().ok_or(RpcError::Option { name, expected: "a string" })?;
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// Checks that a path stays below the directory.
fn path_below(path: String) -> Result<String, RpcError> {
    let is_below = Path::new(&path).components().all(|part| matches!(part, Component::Normal(_)));
    if is_below && !path.ends_with('/') {
        return Ok(path);
    }
    Err(RpcError::Option { name: "out", expected: "a name, or a path below dir without '..'," })
}

fn gid(value: &Value) -> Result<Gid, RpcError> {
    let expected = "16 hexadecimal digits, not all of them 0,";
    let gid = value.as_str().and_then(|text| text.parse().ok()).filter(|gid: &Gid| gid.number() != 0);
    gid.ok_or(RpcError::Option { name: "gid", expected })
}

/// Returns the option's value as text: clients also send numbers and booleans without quotes.
fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn number(name: &'static str, value: &Value) -> Result<usize, RpcError> {
    let wrong = RpcError::Option { name, expected: "a number of at least 1" };
    bare(value).parse().ok().filter(|number| *number > 0).ok_or(wrong)
}

fn flag(name: &'static str, value: &Value) -> Result<bool, RpcError> {
    bare(value).parse().map_err(|_| RpcError::Option { name, expected: "true or false" })
}

fn headers(value: &Value) -> Result<Vec<String>, RpcError> {
    let wrong = || RpcError::Option { name: "header", expected: "'Name: value', or an array of such" };
    let lines: Vec<&str> = match value {
        Value::String(lines) => lines.split('\n').filter(|line| !line.is_empty()).collect(),
        Value::Array(lines) => lines.iter().map(Value::as_str).collect::<Option<_>>().ok_or_else(wrong)?,
        _ => return Err(wrong()),
    };
    let is_header = |line: &&str| line.contains(':') && !line.contains(char::is_control);
    if !lines.iter().all(is_header) {
        return Err(wrong());
    }
    Ok(lines.into_iter().map(str::to_owned).collect())
}

/// Parses bytes per second, with K for 1024 and M for 1024 K.
fn rate(name: &'static str, value: &Value) -> Result<Rate, RpcError> {
    let text = bare(value);
    let (digits, factor) = match text.strip_suffix(['k', 'K', 'm', 'M']) {
        Some(digits) if text.ends_with(['k', 'K']) => (digits, 1024),
        Some(digits) => (digits, 1024 * 1024),
        None => (text.as_str(), 1),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    // The rate in bits per second must fit into a u64.
    let bytes = bytes.filter(|bytes| bytes.checked_mul(8).is_some());
    let expected = "bytes a second, such as 1048576, 1024K or 1M";
    bytes.map(Rate::bytes_per_sec).ok_or(RpcError::Option { name, expected })
}

fn checksum(value: &Value) -> Result<Checksum, RpcError> {
    let expected = "ALGORITHM=HEX, such as sha-256=0192ba…";
    let parsed = value.as_str().and_then(|text| {
        let (algorithm, hex) = text.split_once('=')?;
        Checksum::from_hex(Algorithm::named(algorithm)?, hex)
    });
    parsed.ok_or(RpcError::Option { name: "checksum", expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &Value) -> Result<JobOptions, RpcError> {
        JobOptions::parse(options.as_object().unwrap())
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
        let texts = [&options.dir, &options.out, &options.referer].map(|text| text.as_deref());
        assert_eq!(texts, [Some("/d"), Some("o"), Some("http://p/")]);
        assert_eq!((options.split, options.headers.len(), options.pause), (Some(4), 2, true));
        let chosen = (options.gid.map(Gid::number), options.overwrites, options.renames);
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
        assert_eq!((options.split, options.headers.len(), options.concurrent), (Some(16), 2, Some(3)));
        let unlimited = Some(Rate::bytes_per_sec(0));
        let texts = (options.referer, options.out, options.dir);
        assert_eq!((texts, options.overall_limit), ((None, None, None), unlimited));
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
            assert!(matches!(error, RpcError::Option { name, .. } if name == option), "{value}: {error}");
        }
    }
}
