//! Lists of URLs: one a line, and options of each on indented lines below it, as aria2 reads them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, bail};
use longhaul_core::checksum::Checksum;
use longhaul_core::proto::listing::check_name;
use longhaul_engine::source::is_known_scheme;
use url::Url;

use crate::url_text;

/// The longest list: more than a million URLs.
const LONGEST: u64 = 256 << 20;

/// A file of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UrlLine {
    pub(super) url: Url,
    /// The file's name in the output directory.
    pub(super) name: Option<String>,
    pub(super) checksum: Option<Checksum>,
}

/// Reads the list in the file `path`, or in stdin where that is `-`. The whole list is checked before anything is fetched.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<UrlLine>> {
    let shown = if path.as_os_str() == "-" { "stdin".into() } else { path.display().to_string() };
    let mut text = Vec::new();
    let read = match path.to_str() {
        Some("-") => io::stdin().lock().take(LONGEST + 1).read_to_end(&mut text),
        _ => File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut text)),
    };
    read.with_context(|| format!("cannot read the list of URLs in {shown}"))?;
    if text.len() as u64 > LONGEST {
        bail!("the list of URLs in {shown} is longer than {LONGEST} bytes: split it");
    }
    parse(&text).with_context(|| format!("cannot use the list of URLs in {shown}"))
}

fn parse(text: &[u8]) -> anyhow::Result<Vec<UrlLine>> {
    let mut lines: Vec<UrlLine> = Vec::new();
    let mut names = HashMap::new();
    for (line, number) in text.split(|byte| *byte == b'\n').zip(1..) {
        let line = std::str::from_utf8(line).with_context(|| format!("line {number} is not UTF-8"))?;
        let content = line.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        if !line.starts_with([' ', '\t']) {
            let url = url(content).map_err(|why| anyhow::anyhow!("line {number}: {why}: {content}"))?;
            lines.push(UrlLine { url, name: None, checksum: None });
            continue;
        }
        let Some(last) = lines.last_mut() else { bail!("line {number}: an option stands before any URL") };
        option(last, content).with_context(|| format!("line {number}"))?;
        if let Some(name) = &last.name
            && let Some(first) = names.insert(name.clone(), lines.len()).filter(|first| *first != lines.len())
        {
            bail!("line {number}: the name is that of URL {first} of the list too");
        }
    }
    Ok(lines)
}

fn url(text: &str) -> Result<Url, String> {
    let url = url_text::parse(text)?;
    if url.host().is_none() || !is_known_scheme(url.scheme()) {
        return Err("not a URL that can be fetched".to_owned());
    }
    Ok(url)
}

/// Reads `out=NAME` or `checksum=ALG:HEX`; aria2's `checksum=sha-256=HEX` too.
fn option(of: &mut UrlLine, text: &str) -> anyhow::Result<()> {
    match text.split_once('=').map(|(name, value)| (name.trim(), value.trim())) {
        Some(("out", name)) => {
            check_name(name.as_bytes()).with_context(|| format!("out={name} is not the name of a file"))?;
            of.name = Some(name.to_owned());
        }
        Some(("checksum", value)) => {
            let (algorithm, hex) = value.split_once([':', '=']).unwrap_or((value, ""));
            let checksum = format!("{}:{hex}", algorithm.replace('-', "")).parse();
            of.checksum = Some(checksum.with_context(|| format!("checksum={value}"))?);
        }
        _ => bail!("'{text}' is neither out=NAME nor checksum=ALG:HEX"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_url_a_line_with_options_below() {
        let hex = "900150983cd24fb0d6963f7d28e17f72";
        let text = format!(
            "# files\r\n\r\nhttp://h/a\r\n  out=b c\r\n\tchecksum=md5:{hex}\n   # more\nhttps://h/b?x=1 \nhttp://h/c\n checksum = md5={hex}"
        );
        let lines = parse(text.as_bytes()).unwrap();
        let urls: Vec<_> = lines.iter().map(|line| line.url.as_str()).collect();
        assert_eq!(urls, ["http://h/a", "https://h/b?x=1", "http://h/c"]);
        let checksum = Some(format!("md5:{hex}").parse().unwrap());
        assert_eq!((lines[0].name.as_deref(), &lines[0].checksum), (Some("b c"), &checksum));
        assert_eq!((lines[1].name.as_deref(), &lines[2].checksum), (None, &checksum));
        assert_eq!(parse(b"").unwrap(), []);
    }

    #[test]
    fn bad_line_is_named_by_its_number() {
        for (text, number, why) in [
            ("http://h/a\nnonsense\n", 2, "relative URL"),
            ("\n\nfile:///etc/passwd", 3, "not a URL that can be fetched"),
            ("http:///", 1, ""),
            (" out=a\nhttp://h/", 1, "before any URL"),
            ("http://h/\n out=../a", 2, "not the name"),
            ("http://h/\n out=", 2, "not the name"),
            ("http://h/\n split=5", 2, "neither out"),
            ("http://h/\n checksum=md5:12", 2, "checksum"),
            ("http://h/a\n out=x\nhttp://h/b\n out=x", 4, "URL 1"),
        ] {
            let error = format!("{:#}", parse(text.as_bytes()).unwrap_err());
            assert!(error.contains(&format!("line {number}")) && error.contains(why), "{text:?}: {error}");
        }
        assert!(parse(b"http://h/\xff").is_err());
    }
}
