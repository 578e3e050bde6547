//! The clients: longhaul, its peers, and programs that measure upper bounds, as commands.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;

use longhaul_core::pace::Pace;
use longhaul_core::units::Bytes;
use serde::{Serialize, Serializer};

use crate::experiments::Experiment;
use crate::server::{BenchServer, TOKEN};

/// A program that fetches, sends or writes a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BenchClient {
    /// `longhaul get` with this number of streams.
    Streams(Streams),
    /// `longhaul get` with one stream and the writer of this name.
    Writer(&'static str),
    /// `longhaul get` with this number of streams, each with a window of 64 KiB.
    SmallSockets(Streams),
    /// `longhaul get` from `longhaul serve`, both with this `--pace` and records at 1 ms.
    Served(Pace),
    /// `longhaul get` from `longhaul serve`, both with default options.
    GetFromServe,
    /// `longhaul put` to `longhaul serve --writable`, with a record.
    Put,
    /// `longhaul put` without a record.
    PutDefault,
    /// `longhaul put` without a record and without verification.
    PutUnverified,
    /// `curl -T` to `longhaul serve --writable`.
    CurlUpload,
    /// `longhaul put` with this `--pace`.
    PutPaced(Pace),
    /// curl, to a file.
    Curl,
    /// axel with 64 connections.
    Axel,
    /// aria2 with 16 connections, its maximum.
    Aria2,
    /// `longhaul get` with the URL of each file.
    GetEach,
    /// aria2 with a list of the files' URLs, 16 files at once.
    Aria2List,
    /// curl to /dev/null: the network's bound.
    CurlToNull,
    /// `longhaul get` over GridFTP with this number of streams.
    GridFtp(Streams),
    /// `longhaul get` over GridFTP with the URL of each file.
    GridFtpEach,
    /// globus-url-copy with this number of streams.
    UrlCopy(u32),
    /// globus-url-copy with a list of the files, 8 at once, requested ahead.
    UrlCopyList,
    /// A method of receiving that only the benchmark has.
    Experiment(Experiment),
    /// fio, which only writes: the disk's bound.
    Fio,
}

/// Options of all longhaul fetches: a run must not use what an earlier one stored.
const GET: [&str; 4] = ["get", "--json", "--no-resume", "--no-memory"];
/// Linux 6.18 announces a window of 64 KiB with it, which is the socket buffer of the paper's ns-2 simulations.
pub(crate) const SMALL_BUFFER: [&str; 2] = ["--recv-buffer", "51KiB"];

/// The selection of the number of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Streams {
    /// `--streams auto`.
    Auto,
    /// `--streams N`.
    Fixed(u32),
    /// `--tuner apt` with the paper's parameters, which are the defaults.
    Apt,
}

impl Streams {
    fn options(self) -> Vec<String> {
        match self {
            Self::Auto => ["--streams", "auto"].map(str::to_owned).into(),
            Self::Fixed(streams) => vec!["--streams".to_owned(), streams.to_string()],
            Self::Apt => ["--tuner", "apt", "--pace", "off"].map(str::to_owned).into(),
        }
    }
}

impl fmt::Display for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("longhaul"),
            Self::Fixed(1) => f.write_str("longhaul, 1 stream"),
            Self::Fixed(streams) => write!(f, "longhaul, {streams} streams"),
            Self::Apt => f.write_str("longhaul, APT"),
        }
    }
}

/// The variable words of a client's command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandWords<'a> {
    /// The longhaul program.
    pub(crate) longhaul: &'a OsStr,
    /// This program.
    pub(crate) bench: &'a OsStr,
    /// The server, ADDRESS:PORT.
    pub(crate) server: &'a str,
    /// The file to send.
    pub(crate) source: &'a OsStr,
    /// The file's path on the server; each path for several files.
    pub(crate) paths: &'a [String],
    /// The directory of the paths; GridFTP URLs include it.
    pub(crate) root: &'a Path,
    /// A list of the files, see [`BenchClient::list`].
    pub(crate) list: &'a OsStr,
    /// The destination: a file, or the directory for several.
    pub(crate) file: &'a OsStr,
    /// The client's record.
    pub(crate) record: &'a OsStr,
    /// The file with the write token.
    pub(crate) token: &'a OsStr,
    /// The file's size.
    pub(crate) size: Bytes,
}

impl CommandWords<'_> {
    /// Returns the URL of a path on the server.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server)
    }

    /// Returns the GridFTP URL of a path on the server.
    fn ftp_url(&self, path: &str) -> String {
        format!("ftp://{}{}{path}", self.server, self.root.display())
    }

    /// Returns the URL of the destination file for a path on the server.
    fn file_url(&self, path: &str) -> String {
        let file = Path::new(self.file);
        let file = match self.paths {
            [_] => file.to_owned(),
            _ => file.join(Path::new(path).file_name().unwrap_or_default()),
        };
        format!("file://{}", file.display())
    }
}

impl BenchClient {
    /// Returns whether the client writes a downloaded file.
    pub(crate) fn keeps_file(self) -> bool {
        !matches!(self, Self::CurlToNull | Self::Fio)
    }

    /// Returns the required server; `None` for local programs.
    pub(crate) fn server(self) -> Option<BenchServer> {
        match self {
            Self::Fio => None,
            Self::Served(pace) => Some(BenchServer::Serve(pace)),
            Self::GetFromServe => Some(BenchServer::ServeDefault),
            Self::Put | Self::PutPaced(_) | Self::PutDefault | Self::PutUnverified | Self::CurlUpload => {
                Some(BenchServer::Writable)
            }
            Self::GridFtp(_) | Self::GridFtpEach | Self::UrlCopy(_) | Self::UrlCopyList => {
                Some(BenchServer::Globus)
            }
            _ => Some(BenchServer::Nginx),
        }
    }

    /// Returns whether the client uploads.
    pub(crate) fn sends(self) -> bool {
        self.server() == Some(BenchServer::Writable)
    }

    /// Returns whether the client prints progress events.
    pub(crate) fn prints_progress(self) -> bool {
        matches!(
            self,
            Self::Streams(_)
                | Self::GridFtp(_)
                | Self::Writer(_)
                | Self::SmallSockets(_)
                | Self::Served(_)
                | Self::Put
                | Self::PutPaced(_)
        )
    }

    /// Returns whether the number of streams is fixed.
    pub(crate) fn is_fixed(self) -> bool {
        matches!(self, Self::Streams(Streams::Fixed(_)) | Self::SmallSockets(Streams::Fixed(_)))
    }

    /// Returns the list of the files, one per line: URLs, or source and destination for globus-url-copy.
    pub(crate) fn list(self, words: &CommandWords<'_>) -> String {
        let line = |path: &String| match self {
            Self::UrlCopyList => format!("{} {}\n", words.ftp_url(path), words.file_url(path)),
            _ => format!("{}\n", words.url(path)),
        };
        words.paths.iter().map(line).collect()
    }

    /// Returns the client's command.
    pub(crate) fn command(self, words: &CommandWords<'_>) -> Vec<OsString> {
        let path = words.paths.first().map_or("", String::as_str);
        let url = words.url(path);
        let mut command: Vec<OsString> = Vec::new();
        let mut add = |more: &[&OsStr]| command.extend(more.iter().map(OsString::from));
        match self {
            Self::GetFromServe => {
                add(&[words.longhaul]);
                add(&GET.map(OsStr::new));
                add(&["-o".as_ref(), words.file, url.as_ref()]);
            }
            Self::Streams(streams) | Self::SmallSockets(streams) => {
                add(&[words.longhaul]);
                add(&GET.map(OsStr::new));
                streams.options().iter().for_each(|option| add(&[option.as_ref()]));
                if matches!(self, Self::SmallSockets(_)) {
                    add(&SMALL_BUFFER.map(OsStr::new));
                }
                add(&["-o".as_ref(), words.file, url.as_ref()]);
            }
            Self::Writer(writer) => {
                add(&[words.longhaul]);
                add(&GET.map(OsStr::new));
                add(&["--streams", "1", "--writer", writer, "-o"].map(OsStr::new));
                add(&[words.file, url.as_ref()]);
            }
            Self::Axel => {
                add(&["axel", "-q", "-n", "64", "-o"].map(OsStr::new));
                add(&[words.file, url.as_ref()]);
            }
            Self::Aria2 => {
                let file = Path::new(words.file);
                add(&["aria2c", "-q", "-x16", "-s16", "-k1M", "--file-allocation=none", "-d"].map(OsStr::new));
                add(&[file.parent().unwrap_or(file).as_os_str(), "-o".as_ref()]);
                add(&[file.file_name().unwrap_or_default(), url.as_ref()]);
            }
            Self::GetEach => {
                add(&[words.longhaul]);
                add(&GET.map(OsStr::new));
                add(&["-o".as_ref(), words.file]);
                words.paths.iter().for_each(|path| add(&[words.url(path).as_ref()]));
            }
            Self::Aria2List => {
                add(&["aria2c", "-q", "-j16", "--file-allocation=none", "-d"].map(OsStr::new));
                add(&[words.file, "-i".as_ref(), words.list]);
            }
            Self::Served(pace) => {
                add(&[words.longhaul]);
                add(&GET.map(OsStr::new));
                add(&["--streams", "1", "--pace", &pace.option(), "--record-interval", "1ms", "--record"]
                    .map(OsStr::new));
                add(&[words.record, "-o".as_ref(), words.file, url.as_ref()]);
            }
            Self::Put | Self::PutPaced(_) => {
                add(&[words.longhaul]);
                add(&["put", "--json", "--no-resume"].map(OsStr::new));
                if let Self::PutPaced(pace) = self {
                    add(&["--streams", "1", "--no-memory", "--pace", &pace.option()].map(OsStr::new));
                }
                add(&["--allow-cleartext".as_ref(), "--token".as_ref()]);
                add(&[words.token, "--record".as_ref(), words.record, words.source]);
                add(&[format!("http://{}/copy", words.server).as_ref()]);
            }
            Self::PutDefault | Self::PutUnverified => {
                add(&[words.longhaul]);
                add(&["put", "--json", "--no-resume", "--no-memory"].map(OsStr::new));
                if self == Self::PutUnverified {
                    add(&["--no-verify".as_ref()]);
                }
                add(&["--allow-cleartext".as_ref(), "--token".as_ref(), words.token, words.source]);
                add(&[format!("http://{}/copy", words.server).as_ref()]);
            }
            Self::CurlUpload => {
                add(&["curl", "-q", "-sSf", "-H"].map(OsStr::new));
                add(&[format!("Authorization: Bearer {TOKEN}").as_ref(), "-T".as_ref(), words.source]);
                add(&[format!("http://{}/copy", words.server).as_ref()]);
            }
            Self::Curl | Self::CurlToNull => {
                let to = if self == Self::Curl { words.file } else { "/dev/null".as_ref() };
                add(&["curl".as_ref(), "-q".as_ref(), "-sSf".as_ref(), "-o".as_ref(), to, url.as_ref()]);
            }
            Self::GridFtp(streams) => {
                add(&[words.longhaul]);
                add(&GET.map(OsStr::new));
                streams.options().iter().for_each(|option| add(&[option.as_ref()]));
                add(&["-o".as_ref(), words.file, words.ftp_url(path).as_ref()]);
            }
            Self::GridFtpEach => {
                add(&[words.longhaul]);
                add(&GET.map(OsStr::new));
                add(&["-o".as_ref(), words.file]);
                words.paths.iter().for_each(|path| add(&[words.ftp_url(path).as_ref()]));
            }
            Self::UrlCopy(streams) => {
                add(&["globus-url-copy".as_ref(), "-p".as_ref(), streams.to_string().as_ref()]);
                add(&[words.ftp_url(path).as_ref(), words.file_url(path).as_ref()]);
            }
            Self::UrlCopyList => {
                add(&["globus-url-copy", "-pp", "-cc", "8", "-f"].map(OsStr::new));
                add(&[words.list]);
            }
            Self::Experiment(experiment) => {
                add(&[words.bench, "experiment".as_ref(), experiment.name().as_ref()]);
                add(&[words.server.as_ref(), path.as_ref(), words.file]);
            }
            Self::Fio => {
                add(&["fio", "--name=write", "--rw=write", "--bs=4M", "--direct=1"].map(OsStr::new));
                add(&["--ioengine=libaio", "--iodepth=4", "--end_fsync=1"].map(OsStr::new));
                let mut file = OsString::from("--filename=");
                file.push(words.file);
                add(&[
                    "--output-format=json".as_ref(),
                    format!("--size={}", words.size.get()).as_ref(),
                    &file,
                ]);
            }
        }
        command
    }

    /// Returns the client's command for the report, without this machine's paths.
    pub(crate) fn shown(self, size: Bytes) -> String {
        let words = CommandWords {
            longhaul: "longhaul".as_ref(),
            bench: "longhaul-bench".as_ref(),
            server: "SERVER",
            source: "FILE".as_ref(),
            paths: &["/FILE".to_owned()],
            root: Path::new("/DIR"),
            list: "LIST".as_ref(),
            file: match self {
                Self::GetEach | Self::Aria2List | Self::GridFtpEach => "DIR",
                Self::UrlCopy(_) => "/FILE",
                _ => "FILE",
            }
            .as_ref(),
            record: "RECORD".as_ref(),
            token: "TOKEN".as_ref(),
            size,
        };
        self.command(&words).join(OsStr::new(" ")).to_string_lossy().into_owned()
    }
}

impl fmt::Display for BenchClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Writer(writer) => f.pad(&format!("longhaul --writer {writer}")),
            Self::Streams(streams) | Self::SmallSockets(streams) => f.pad(&streams.to_string()),
            Self::Axel => f.pad("axel -n 64"),
            Self::Aria2 => f.pad("aria2 -x16"),
            Self::GetEach => f.pad("longhaul, a URL for each file"),
            Self::Aria2List => f.pad("aria2 -j16 -i LIST"),
            Self::GridFtp(streams) => f.pad(&format!("{streams}, GridFTP")),
            Self::GridFtpEach => f.pad("longhaul, GridFTP, a URL for each file"),
            Self::UrlCopy(streams) => f.pad(&format!("globus-url-copy -p {streams}")),
            Self::UrlCopyList => f.pad("globus-url-copy -pp -cc 8"),
            Self::Served(pace) => f.pad(&format!("longhaul from longhaul serve, pace {pace}")),
            Self::GetFromServe => f.pad("longhaul from longhaul serve"),
            Self::Put | Self::PutDefault => f.pad("longhaul put"),
            Self::PutUnverified => f.pad("longhaul put --no-verify"),
            Self::CurlUpload => f.pad("curl -T"),
            Self::PutPaced(pace) => f.pad(&format!("longhaul put, pace {pace}")),
            Self::Curl => f.pad("curl"),
            Self::CurlToNull => f.pad("curl to /dev/null"),
            Self::Experiment(experiment) => f.pad(experiment.title()),
            Self::Fio => f.pad("fio, direct"),
        }
    }
}

impl Serialize for BenchClient {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests;
