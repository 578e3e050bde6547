//! Lists of URLs: one file per line, with its options on indented lines below, as in aria2 and
//! wget.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use longhaul_core::checksum::Checksum;
use longhaul_core::proto::http::HeaderField;
use longhaul_core::proto::listing::check_name;
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::input_file;
use longhaul_engine::source::is_known_scheme;
use url::Url;

use crate::url_text;

/// Maximum size of a list: more than a million URLs.
const LONGEST: Bytes = Bytes::mib(256);

/// A file of a list.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ListedFile {
    /// The file's URLs; further ones are mirrors of the first.
    pub(crate) urls: Vec<Url>,
    /// The file's name in its directory, or its path below that.
    pub(crate) name: Option<String>,
    /// The file's directory, in place of the command's.
    pub(crate) dir: Option<PathBuf>,
    pub(crate) size: Option<Bytes>,
    pub(crate) checksum: Option<Checksum>,
    /// Headers of the file's requests.
    pub(crate) headers: Vec<HeaderField>,
}

/// Reads the list in the file `path`, or in stdin for `-`. Checks the whole list before anything is
/// fetched.
pub(super) fn read(path: &Path, cancel: &Cancel) -> anyhow::Result<Vec<ListedFile>> {
    let mut files = Vec::new();
    read_each(path, cancel, is_fetched, |file| {
        files.push(file);
        Ok(())
    })?;
    Ok(files)
}

/// Returns whether a URL is one of a server.
pub(crate) fn is_fetched(url: &Url) -> bool {
    url.host().is_some() && is_known_scheme(url.scheme())
}

/// Reads a list as [`read`], of URLs that `is_source` accepts, and passes each file to `take`: of a
/// long list, only the text is in memory.
pub(crate) fn read_each(
    path: &Path,
    cancel: &Cancel,
    is_source: impl Fn(&Url) -> bool,
    take: impl FnMut(ListedFile) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let shown = shown(path);
    let text = match path.to_str() {
        Some("-") => input_file::read_stdin(LONGEST, cancel),
        _ => input_file::read(path, LONGEST, cancel),
    };
    let text = text.with_context(|| format!("cannot read the list of URLs in {shown}"))?;
    let unknown =
        parse(&text, is_source, take).with_context(|| format!("cannot use the list of URLs in {shown}"))?;
    for (name, line) in &unknown {
        tracing::warn!("{shown}, line {line}: the option {name} is not known here, and is ignored");
    }
    Ok(())
}

/// Returns the name of a list for messages.
pub(super) fn shown(path: &Path) -> String {
    if path.as_os_str() == "-" { "stdin".into() } else { path.display().to_string() }
}

/// Passes each file to `take`; returns the unknown options, with the first line of each.
fn parse(
    text: &[u8],
    is_source: impl Fn(&Url) -> bool,
    mut take: impl FnMut(ListedFile) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<(String, usize)>> {
    let (mut unknown, mut last) = (Vec::<(String, usize)>::new(), None::<ListedFile>);
    for (line, number) in text.split(|byte| *byte == b'\n').zip(1..) {
        let line = std::str::from_utf8(line).with_context(|| format!("line {number} is not UTF-8"))?;
        let content = line.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        if !line.starts_with([' ', '\t']) {
            let urls = urls(content, &is_source).map_err(|why| anyhow::anyhow!("line {number}: {why}"))?;
            let file = ListedFile { urls, ..ListedFile::default() };
            last.replace(file).map_or(Ok(()), &mut take)?;
            continue;
        }
        let Some(last) = &mut last else { bail!("line {number}: an option stands before any URL") };
        let name = last.set(content).with_context(|| format!("line {number}"))?;
        if let Some(name) = name.filter(|name| unknown.iter().all(|(known, _)| known != name)) {
            unknown.push((name, number));
        }
    }
    last.map_or(Ok(()), take)?;
    Ok(unknown)
}

/// Parses the tab-separated URLs of one file.
fn urls(line: &str, is_source: impl Fn(&Url) -> bool) -> Result<Vec<Url>, String> {
    let url = |text: &str| {
        let url = url_text::parse(text).map_err(|why| format!("{why}: {text}"))?;
        if !is_source(&url) {
            return Err(format!("not a URL that can be fetched: {text}"));
        }
        Ok(url)
    };
    line.split('\t').map(str::trim).filter(|text| !text.is_empty()).map(url).collect()
}

impl ListedFile {
    /// Applies an option; returns its name if it is unknown.
    fn set(&mut self, text: &str) -> anyhow::Result<Option<String>> {
        let Some((name, value)) = text.split_once('=').map(|(name, value)| (name.trim(), value.trim()))
        else {
            bail!("'{text}' is no option: write NAME=VALUE, as out=NAME, or begin the line with a URL");
        };
        match name {
            "out" => {
                value
                    .split('/')
                    .try_for_each(|name| check_name(name.as_bytes()))
                    .with_context(|| format!("out={value} is not the name of a file below the directory"))?;
                self.name = Some(value.to_owned());
            }
            "dir" if value.is_empty() => bail!("dir= names no directory"),
            "dir" => self.dir = Some(value.into()),
            "size" => {
                let size = Bytes::with_unit(value).map_err(|why| anyhow::anyhow!("size={value}: {why}"))?;
                self.size = Some(size);
            }
            "checksum" => {
                let (algorithm, hex) = value.split_once([':', '=']).unwrap_or((value, ""));
                let checksum = format!("{}:{hex}", algorithm.replace('-', "")).parse();
                self.checksum = Some(checksum.with_context(|| format!("checksum={value}"))?);
            }
            "header" => self.headers.push(value.parse()?),
            "referer" => self.headers.push(HeaderField::new("Referer", value)?),
            "user-agent" => self.headers.push(HeaderField::new("User-Agent", value)?),
            _ => return Ok(Some(name.to_owned())),
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files, and unknown options.
    type ParsedList = (Vec<ListedFile>, Vec<(String, usize)>);

    /// Parses a list.
    fn parsed(text: &[u8]) -> anyhow::Result<ParsedList> {
        let mut files = Vec::new();
        let unknown = parse(text, is_fetched, |file| {
            files.push(file);
            Ok(())
        })?;
        Ok((files, unknown))
    }

    #[test]
    fn one_url_a_line_with_options_below() {
        let hex = "900150983cd24fb0d6963f7d28e17f72";
        let text = format!(
            "# files\r\n\r\nhttp://h/a\r\n  out=b c\r\n\tsize=5KiB\n\tchecksum=md5:{hex}\n   # more\nhttps://h/b?x=1 \n\
             http://h/c\thttps://m/c\t\tftp://n/c\t\r\n checksum = md5={hex}\n header=X: y=z\n dir=/srv/x\n split=5\n\
             http://h/d\n split=6\n max-tries=1\n referer=http://page/\n"
        );
        let (files, unknown) = parsed(text.as_bytes()).unwrap();
        let urls: Vec<_> = files.iter().flat_map(|file| &file.urls).map(Url::as_str).collect();
        let mirrors = ["http://h/c", "https://m/c", "ftp://n/c"];
        assert_eq!(urls, [&["http://h/a", "https://h/b?x=1"][..], &mirrors, &["http://h/d"]].concat());
        let checksum = Some(format!("md5:{hex}").parse().unwrap());
        assert_eq!((files[0].name.as_deref(), &files[0].checksum), (Some("b c"), &checksum));
        assert_eq!(files[0].size, Some(Bytes::kib(5)));
        assert_eq!((files[1].name.as_deref(), &files[2].checksum), (None, &checksum));
        let dir = Some(Path::new("/srv/x"));
        assert_eq!((files[2].headers[0].value(), files[2].dir.as_deref()), ("y=z", dir));
        assert_eq!(files[3].headers[0].name(), "Referer");
        assert_eq!(unknown, [("split".to_owned(), 13), ("max-tries".to_owned(), 16)]);
        assert_eq!(parsed(b"").unwrap().0, []);
    }

    #[test]
    fn bad_line_is_reported_with_its_number() {
        for (text, place, why) in [
            ("http://h/a\nnonsense\n", "line 2", "no URL"),
            ("\n\nfile:///etc/passwd", "line 3", "not a URL that can be fetched"),
            ("http://h/a\tfile:///etc/passwd", "line 1", "not a URL that can be fetched: file"),
            ("http:///", "line 1", ""),
            (" out=a\nhttp://h/", "line 1", "before any URL"),
            ("http://h/\n out=../a", "line 2", "not the name"),
            ("http://h/\n out=", "line 2", "not the name"),
            ("http://h/\n out=/a", "line 2", "not the name"),
            ("http://h/\n out=a/../../b", "line 2", "not the name"),
            ("http://h/\n out=a/", "line 2", "not the name"),
            ("http://h/\n dir=", "line 2", "no directory"),
            ("http://h/\n split", "line 2", "no option"),
            ("http://h/\n size=5G", "line 2", "5GB or 5GiB"),
            ("http://h/\n checksum=md5:12", "line 2", "checksum"),
            ("http://h/\n header=none", "line 2", "colon"),
        ] {
            let error = format!("{:#}", parsed(text.as_bytes()).unwrap_err());
            assert!(error.contains(place) && error.contains(why), "{text:?}: {error}");
        }
        assert!(parsed(b"http://h/\xff").is_err());
    }
}
