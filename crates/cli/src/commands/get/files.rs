//! The files that a command names by URLs, metalinks and lists, with their known properties.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use longhaul_core::checksum_list::ChecksumList;
use longhaul_core::proto::http::HeaderField;
use longhaul_core::proto::metalink::{MAX_DOCUMENT, Metalink, MetalinkFile};
use longhaul_core::units::Bytes;
use longhaul_engine::cancel::Cancel;
use longhaul_engine::input_file;
use longhaul_engine::job::{Expected, JobOptions};
use longhaul_engine::sink::output::Output;
use longhaul_engine::sink::output_error::OutputError;
use longhaul_engine::source::http::SafeUrl;
use longhaul_engine::source::is_known_scheme;
use percent_encoding::percent_decode_str;
use url::Url;

use super::{GetArgs, Operand, if_newer, to_stdout, url_list};

/// Maximum of sources per file: more would exceed the number of streams.
const MAX_SOURCES: usize = 16;
/// Maximum size of a list of checksums: half a million files.
const LONGEST_CHECKSUMS: Bytes = Bytes::mib(64);

/// A file to fetch: its URLs and known properties.
#[derive(Default)]
pub(super) struct RemoteFile {
    pub(super) urls: Vec<Url>,
    pub(super) expected: Expected,
    /// The user's name for the file in the output directory, or its path below that.
    name: Option<String>,
    /// The file's directory, in place of the command's.
    dir: Option<PathBuf>,
    /// Headers of the file's requests.
    headers: Vec<HeaderField>,
}

impl RemoteFile {
    pub(super) fn shown(&self) -> String {
        self.urls.first().map(|url| SafeUrl::of(url).to_string()).unwrap_or_default()
    }

    /// Decides between a file and a directory as output: a path ending in / is a directory, and so
    /// is the output of `several` files.
    pub(super) fn target(&self, output: Option<&Path>, several: bool) -> Output {
        let output = self.dir.as_deref().or(output);
        if let Some(name) = &self.name {
            return Output::File(output.unwrap_or(Path::new(".")).join(name));
        }
        match output {
            None => Output::Directory(PathBuf::from(".")),
            Some(path) if several || self.dir.is_some() || ends_in_slash(path) => {
                Output::Directory(path.to_owned())
            }
            Some(path) => Output::File(path.to_owned()),
        }
    }

    /// Returns the options of this file: the common ones, and its own headers, which are sent to
    /// the server of its first URL.
    pub(super) fn options(&self, all: &JobOptions) -> JobOptions {
        let mut options = all.clone();
        let own = self.urls.first().filter(|url| matches!(url.scheme(), "http" | "https"));
        if let (Some(own), false) = (own, self.headers.is_empty()) {
            if options.logins_for.as_ref().is_some_and(|trusted| trusted.origin() != own.origin()) {
                options.transfer.client = options.transfer.client.without_secrets();
            }
            let given = |header: &HeaderField| self.headers.iter().any(|own| own.is(header.name()));
            options.transfer.client.requests.headers.retain(|header| !given(header));
            options.transfer.client.requests.headers.extend(self.headers.iter().cloned());
            options.logins_for = Some(own.clone());
        }
        options
    }

    /// Returns the path on the server as text.
    fn remote_path(&self) -> Option<String> {
        let url = self.urls.first()?;
        Some(percent_decode_str(url.path()).decode_utf8_lossy().into_owned())
    }
}

/// Returns whether a path is written as that of a directory.
fn ends_in_slash(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/")
}

/// Collects the files of the operands and the list: a URL is one file, a metalink one or more.
pub(super) fn collect(args: &GetArgs, cancel: &Cancel) -> anyhow::Result<Vec<RemoteFile>> {
    let mut files = Vec::new();
    let given = args.integrity.given();
    let by_server = args.integrity.is_by_server();
    for source in &args.sources {
        match source {
            Operand::Url(url) => {
                let urls = std::iter::once(url).chain(&args.files.mirror).cloned().collect();
                let expected = Expected {
                    checksums: given.cloned().into_iter().collect(),
                    by_server,
                    ..Expected::default()
                };
                files.push(RemoteFile { urls, expected, ..RemoteFile::default() });
            }
            Operand::Metalink(path) => files.extend(of_metalink(path, args, cancel)?),
        }
    }
    if let Some(list) = &args.files.input {
        if given.is_some() || !args.files.mirror.is_empty() {
            bail!("--checksum and --mirror are for one file; in the list, write checksum= below its URL");
        }
        let listed = url_list::read(list, cancel)?;
        if listed.is_empty() {
            let empty = format!("the list of URLs in {} holds no URL", url_list::shown(list));
            if files.is_empty() {
                bail!(empty);
            }
            tracing::warn!("{empty}");
        }
        files.extend(listed.into_iter().map(|file| RemoteFile {
            urls: file.urls.into_iter().take(MAX_SOURCES).collect(),
            expected: Expected {
                size: file.size,
                checksums: file.checksum.into_iter().collect(),
                by_server,
                ..Expected::default()
            },
            name: file.name,
            dir: file.dir,
            headers: file.headers,
        }));
    }
    if files.len() > 1 && (given.is_some() || !args.files.mirror.is_empty()) {
        bail!("--checksum and --mirror are for one file; fetch the others with commands of their own");
    }
    refuse_clear(args, files.iter().flat_map(|file| &file.urls))?;
    if let Some(list) = &args.integrity.checksum_file {
        look_up_checksums(list, args, &mut files, cancel)?;
    }
    Ok(files)
}

/// Fails if one of `urls` is unencrypted although the user requires encryption.
pub(super) fn refuse_clear<'u>(
    args: &GetArgs,
    mut urls: impl Iterator<Item = &'u Url>,
) -> anyhow::Result<()> {
    match urls.find(|url| args.transfer.client.trust.encrypt && matches!(url.scheme(), "http" | "ftp")) {
        Some(url) => {
            bail!(
                "{} is sent in clear; --encrypt needs https://, ftps:// or gsiftp:// URLs",
                SafeUrl::of(url)
            )
        }
        None => Ok(()),
    }
}

/// Fails if two files would be written to one path, as far as the paths are known before the
/// servers answer; `several` is as of [`make_directories`], which has made the directories. A file
/// named by its server alone is known by its URL.
pub(super) fn refuse_repeated(args: &GetArgs, files: &[RemoteFile], several: bool) -> anyhow::Result<()> {
    let mut places = HashMap::new();
    for file in files {
        let (mut output, url) = (file.target(args.files.output.as_deref(), several), file.urls.first());
        let name = file.expected.name.as_ref();
        let newer = url.filter(|_| args.files.if_newer).and_then(|url| if_newer::path_of(&output, url, name));
        output = newer.map_or(output, Output::File);
        // The transfer reports an output that cannot be used.
        let Ok(Ok(Some(place))) = output.prepare().map(|output| output.place(name.map(String::as_str)))
        else {
            continue;
        };
        let unnamed = url.filter(|_| !place.is_named());
        let Some(first) = places.insert((place, unnamed), file) else { continue };
        let remedy = "leave one out, or name one with out= in a list (-i)";
        match (first.urls.first() == url, file.shown()) {
            (true, shown) => bail!("{shown} occurs twice: {remedy}"),
            (false, shown) => bail!("{shown} would get the path of {}: {remedy}", first.shown()),
        }
    }
    Ok(())
}

/// Creates the missing output directories; `several` is whether there may be several files.
///
/// # Errors
/// [`OutputError::Create`].
pub(super) fn make_directories(
    args: &GetArgs,
    files: &[RemoteFile],
    several: bool,
) -> Result<(), OutputError> {
    let is_directory = |output: &&Path| (several || ends_in_slash(output)) && !to_stdout::is_requested(args);
    let common = args.files.output.as_deref().filter(is_directory);
    let own = files.iter().filter_map(|file| file.dir.as_deref());
    let is_below = |file: &&RemoteFile| file.name.as_ref().is_some_and(|name| name.contains('/'));
    let paths = files.iter().filter(is_below).map(|file| file.target(args.files.output.as_deref(), several));
    let below = paths.filter_map(|output| match output {
        Output::File(path) => path.parent().map(Path::to_owned),
        _ => None,
    });
    for path in common.into_iter().chain(own).map(Path::to_owned).chain(below) {
        std::fs::create_dir_all(&path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => OutputError::Create { path, source: ErrorKind::NotADirectory.into() },
            _ => OutputError::Create { path, source: error },
        })?;
    }
    Ok(())
}

/// Assigns checksums of the list at `path` to files without one: by the name on the server,
/// otherwise by the local name.
fn look_up_checksums(
    path: &Path,
    args: &GetArgs,
    files: &mut [RemoteFile],
    cancel: &Cancel,
) -> anyhow::Result<()> {
    let read = || -> anyhow::Result<ChecksumList> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(ChecksumList::parse(&input_file::read(path, LONGEST_CHECKSUMS, cancel)?, &name)?)
    };
    let list = read().with_context(|| format!("cannot use the checksums in {}", path.display()))?;
    let output = args.files.output.as_deref().filter(|_| files.len() == 1 && !to_stdout::is_requested(args));
    let output = output.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    for file in files.iter_mut().filter(|file| file.expected.checksums.is_empty()) {
        let remote = file.remote_path().unwrap_or_default();
        let here = file.expected.name.as_ref().or(file.name.as_ref()).or(output.as_ref());
        let found = list.find(&remote).or_else(|error| here.map_or(Err(error), |name| list.find(name)));
        file.expected.checksums =
            found.with_context(|| format!("{} has no checksum of {}", path.display(), file.shown()))?;
    }
    Ok(())
}

/// Reads the files of a metalink; fails on a file without a usable URL, as the result would look
/// complete.
fn of_metalink(path: &Path, args: &GetArgs, cancel: &Cancel) -> anyhow::Result<Vec<RemoteFile>> {
    let read = || -> anyhow::Result<Metalink> {
        Ok(Metalink::parse(&input_file::read(path, MAX_DOCUMENT, cancel)?)?)
    };
    let metalink = read().with_context(|| format!("cannot use the metalink {}", path.display()))?;
    let of_file = |file: MetalinkFile| {
        let usable = |url: Url| is_known_scheme(url.scheme()).then_some(url);
        let named = file.sources.iter().filter_map(|source| usable(source.url.parse().ok()?));
        let urls: Vec<_> = named.take(MAX_SOURCES).chain(args.files.mirror.iter().cloned()).collect();
        if urls.is_empty() {
            bail!("{} in the metalink {} has no URL that can be fetched", file.name, path.display());
        }
        let given = args.integrity.given();
        let checksum = given.or_else(|| file.best_checksum()).cloned();
        let by_server = args.integrity.is_by_server();
        let name = file.name.components().last().map(|name| name.to_string());
        let expected = Expected {
            name,
            size: file.size,
            checksums: checksum.into_iter().collect(),
            by_server,
            pieces: file.pieces,
            ..Expected::default()
        };
        Ok(RemoteFile { urls, expected, ..RemoteFile::default() })
    };
    metalink.files.into_iter().map(of_file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_a_directory_only_if_named_so() {
        let file = |name: Option<&str>, dir: Option<&str>| RemoteFile {
            name: name.map(str::to_owned),
            dir: dir.map(PathBuf::from),
            ..RemoteFile::default()
        };
        let is_directory = |output: Option<&str>, several| {
            matches!(file(None, None).target(output.map(Path::new), several), Output::Directory(_))
        };
        let outputs = [(None, false), (Some("a/"), false), (Some("a"), true), (Some("a"), false)];
        assert_eq!(outputs.map(|(output, several)| is_directory(output, several)), [true, true, true, false]);
        let named = |dir| match file(Some("b"), dir).target(Some(Path::new("a")), true) {
            Output::File(path) => path,
            other => panic!("{other:?}"),
        };
        assert_eq!((named(None), named(Some("c"))), ("a/b".into(), "c/b".into()));
        let own = file(None, Some("c")).target(Some(Path::new("a")), false);
        assert!(matches!(own, Output::Directory(path) if path == Path::new("c")));
    }
}
