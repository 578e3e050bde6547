//! The clients: longhaul, its peers, and programs that measure upper bounds, as commands.

use std::fmt;

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
    /// The second run of a client of longhaul, with the path memory of the first.
    Again(&'static BenchClient),
}

/// Options of all longhaul fetches: a run must not use what an earlier one stored.
const GET: &str = "get --json --no-resume --no-memory";
const NO_MEMORY: &str = " --no-memory";
/// Linux 6.18 announces a window of 64 KiB with it, which is the socket buffer of the paper's ns-2 simulations.
pub(crate) const SMALL_BUFFER: &str = "--recv-buffer 51KiB";

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
    fn options(self) -> String {
        match self {
            Self::Auto => "--streams auto".to_owned(),
            Self::Fixed(streams) => format!("--streams {streams}"),
            Self::Apt => "--tuner apt --pace off".to_owned(),
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

/// The variable words of a client's command, as a shell reads them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandWords<'a> {
    /// The longhaul program.
    pub(crate) longhaul: &'a str,
    /// This program.
    pub(crate) bench: &'a str,
    /// The server, ADDRESS:PORT.
    pub(crate) server: &'a str,
    /// The file to send.
    pub(crate) source: &'a str,
    /// The file's path on the server; each path for several files.
    pub(crate) paths: &'a [String],
    /// The directory of the paths; GridFTP URLs include it.
    pub(crate) root: &'a str,
    /// A list of the files, see [`BenchClient::list`].
    pub(crate) list: &'a str,
    /// The destination: a file, or the directory for several.
    pub(crate) file: &'a str,
    /// The client's record.
    pub(crate) record: &'a str,
    /// The file with the write token.
    pub(crate) token: &'a str,
    /// The file's size.
    pub(crate) size: Bytes,
}

impl CommandWords<'_> {
    /// Returns the URL of a path on the server.
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server)
    }

    /// Returns the GridFTP URL of a path on the server.
    fn ftp_url(&self, path: &str) -> String {
        format!("ftp://{}{}{path}", self.server, self.root)
    }

    /// Returns the URL of the destination file for a path on the server.
    fn file_url(&self, path: &str) -> String {
        match (self.paths, path.rsplit_once('/')) {
            ([_, _, ..], Some((_, name))) => format!("file://{}/{name}", self.file),
            _ => format!("file://{}", self.file),
        }
    }

    fn each(&self, url: impl Fn(&Self, &str) -> String) -> String {
        self.paths.iter().map(|path| url(self, path)).collect::<Vec<_>>().join(" ")
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
            Self::Again(client) => client.server(),
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

    /// Returns the client's command for a shell.
    pub(crate) fn command(self, words: &CommandWords<'_>) -> String {
        let CommandWords { longhaul, bench, server, source, list, file, record, token, .. } = words;
        let path = words.paths.first().map_or("", String::as_str);
        let url = words.url(path);
        let put = format!("{longhaul} put --json --no-resume");
        let to_serve = format!("{source} http://{server}/copy");
        match self {
            Self::Again(client) => client.command(words).replacen(NO_MEMORY, "", 1),
            Self::GetFromServe => format!("{longhaul} {GET} -o {file} {url}"),
            Self::Streams(streams) => format!("{longhaul} {GET} {} -o {file} {url}", streams.options()),
            Self::SmallSockets(streams) => {
                format!("{longhaul} {GET} {} {SMALL_BUFFER} -o {file} {url}", streams.options())
            }
            Self::Writer(writer) => format!("{longhaul} {GET} --streams 1 --writer {writer} -o {file} {url}"),
            Self::Axel => format!("axel -q -n 64 -o {file} {url}"),
            Self::Aria2 => {
                let (directory, name) = file.rsplit_once('/').unwrap_or((".", file));
                format!("aria2c -q -x16 -s16 -k1M --file-allocation=none -d {directory} -o {name} {url}")
            }
            Self::GetEach => format!("{longhaul} {GET} -o {file} {}", words.each(CommandWords::url)),
            Self::Aria2List => format!("aria2c -q -j16 --file-allocation=none -d {file} -i {list}"),
            Self::Served(pace) => format!(
                "{longhaul} {GET} --streams 1 --pace {} --record-interval 1ms --record {record} -o {file} {url}",
                pace.option()
            ),
            Self::Put => format!("{put} --allow-cleartext --token {token} --record {record} {to_serve}"),
            Self::PutPaced(pace) => format!(
                "{put} --streams 1 --no-memory --pace {} --allow-cleartext --token {token} --record {record} {to_serve}",
                pace.option()
            ),
            Self::PutDefault => format!("{put} --no-memory --allow-cleartext --token {token} {to_serve}"),
            Self::PutUnverified => {
                format!("{put} --no-memory --no-verify --allow-cleartext --token {token} {to_serve}")
            }
            Self::CurlUpload => {
                format!("curl -q -sSf -H 'Authorization: Bearer {TOKEN}' -T {to_serve}")
            }
            Self::Curl => format!("curl -q -sSf -o {file} {url}"),
            Self::CurlToNull => format!("curl -q -sSf -o /dev/null {url}"),
            Self::GridFtp(streams) => {
                format!("{longhaul} {GET} {} -o {file} {}", streams.options(), words.ftp_url(path))
            }
            Self::GridFtpEach => {
                format!("{longhaul} {GET} -o {file} {}", words.each(CommandWords::ftp_url))
            }
            Self::UrlCopy(streams) => {
                format!("globus-url-copy -p {streams} {} {}", words.ftp_url(path), words.file_url(path))
            }
            Self::UrlCopyList => format!("globus-url-copy -pp -cc 8 -f {list}"),
            Self::Experiment(experiment) => {
                format!("{bench} experiment {} {server} {path} {file}", experiment.name())
            }
            Self::Fio => format!(
                "fio --name=write --rw=write --bs=4M --direct=1 --ioengine=libaio --iodepth=4 --end_fsync=1 \
                 --output-format=json --size={} --filename={file}",
                words.size.get()
            ),
        }
    }

    /// Returns the client's command for the report, without this machine's paths.
    pub(crate) fn shown(self, size: Bytes) -> String {
        let words = CommandWords {
            longhaul: "longhaul",
            bench: "longhaul-bench",
            server: "SERVER",
            source: "FILE",
            paths: &["/FILE".to_owned()],
            root: "/DIR",
            list: "LIST",
            file: match self {
                Self::GetEach | Self::Aria2List | Self::GridFtpEach | Self::Again(Self::GetEach) => "DIR",
                Self::UrlCopy(_) => "/FILE",
                _ => "FILE",
            },
            record: "RECORD",
            token: "TOKEN",
            size,
        };
        self.command(&words)
    }

    /// Returns the client's name in a scenario.
    pub(crate) fn run_name(self) -> String {
        let fitting = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        self.to_string().chars().map(fitting).collect()
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
            Self::Again(client) => f.pad(&format!("{client}, again")),
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
