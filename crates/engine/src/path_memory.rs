//! Measurements of paths from earlier transfers, stored in a small file per user.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longhaul_core::tune::pace::HeldRate;
use longhaul_core::tune::streams::Remembered;
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::atomic_file;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use url::Url;

use crate::input_file;

/// An error of the path memory.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// The file exists but cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The content is not a path memory.
    #[error("cannot parse {path}: {why}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The error.
        why: String,
    },
    /// A later version of this program wrote the file.
    #[error("{path} is of version {version}, which this program does not support")]
    Version {
        /// The file.
        path: PathBuf,
        /// The version in the file.
        version: u32,
    },
    /// The file cannot be replaced.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// A server and the direction of transfer, which identify a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    host: String,
    port: u16,
    /// Whether the path leads to the server: capacity and limiting buffers differ from those of the
    /// opposite direction.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    upload: bool,
}

impl Endpoint {
    /// Returns the endpoint of downloads from `url`; `None` if the URL has no host.
    pub fn of(url: &Url) -> Option<Self> {
        Some(Self {
            host: url.host_str()?.to_owned(),
            port: crate::source::default_port(url)?,
            upload: false,
        })
    }

    /// Returns whether the host of `url` is that of the endpoint.
    pub(crate) fn is_at_host_of(&self, url: &Url) -> bool {
        url.host_str() == Some(&self.host)
    }

    /// Returns the endpoint of uploads to `url`; `None` if the URL has no host.
    pub fn of_upload(url: &Url) -> Option<Self> {
        Some(Self { upload: true, ..Self::of(url)? })
    }
}

/// The measurements of one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownPath {
    #[serde(flatten)]
    endpoint: Endpoint,
    rtt_us: u64,
    rate_bps: u64,
    streams: usize,
    /// The size that the application buffer grew to.
    app_buffer: u64,
    /// The receive window of all streams together, in bytes.
    window: u64,
    /// Whether the server paces its sending.
    #[serde(default)]
    paced: bool,
    /// Time of the measurement, in seconds since 1970.
    at: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Document {
    version: u32,
    paths: Vec<KnownPath>,
}

/// The version alone: other versions may have other fields.
#[derive(Debug, Deserialize)]
struct Version {
    version: u32,
}

const VERSION: u32 = 1;
/// The number of most recently used paths that are kept.
const MAX_PATHS: usize = 256;
/// A larger file is not a path memory.
const LARGEST: Bytes = Bytes::mib(1);
/// Older measurements are not used.
const OLDEST: Duration = Duration::from_secs(30 * 24 * 3600);
/// A larger change of the RTT means another path.
const SAME_RTT: f64 = 1.5;
/// RTTs below this value are dominated by the hosts' own variation.
const NOISE: Duration = Duration::from_millis(2);
/// The maximum wait for the file's lock, which is held for milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// The interval between attempts to lock.
const RETRY: Duration = Duration::from_millis(5);
/// The largest accepted number of streams.
const MAX_REMEMBERED_STREAMS: usize = 1024;

impl KnownPath {
    /// Creates a path from the measurements of a transfer that ends now.
    pub fn new(endpoint: Endpoint, found: Remembered, app_buffer: Bytes, window: Bytes) -> Self {
        Self {
            endpoint,
            rtt_us: u64::try_from(found.rtt.get().as_micros()).unwrap_or(u64::MAX),
            rate_bps: found.rate.as_bits_per_sec(),
            streams: found.streams,
            app_buffer: app_buffer.get(),
            window: window.get(),
            paced: false,
            at: now(),
        }
    }

    /// Marks the server as pacing its sending.
    pub fn paced(self) -> Self {
        Self { paced: true, ..self }
    }

    /// Marks the server as not pacing its sending, or not on this path.
    pub fn not_paced(self) -> Self {
        Self { paced: false, ..self }
    }

    /// Returns the rate to request from a server that paces its sending, before the path is known
    /// to be unchanged.
    pub fn pace(&self) -> Option<HeldRate> {
        let known = HeldRate {
            rate: Rate::bits_per_sec(self.rate_bps),
            rtt: Rtt::new(Duration::from_micros(self.rtt_us)),
        };
        (self.paced && self.is_fresh()).then_some(known)
    }

    fn is_fresh(&self) -> bool {
        now().saturating_sub(self.at) <= OLDEST.as_secs()
    }

    /// Returns initial values for a path that has this RTT now; `None` if the path has changed or
    /// the measurement is too old.
    pub fn still_holds(&self, rtt: Rtt) -> Option<Remembered> {
        let known = |rtt: Duration| rtt.max(NOISE).as_secs_f64();
        let ratio = known(rtt.get()) / known(Duration::from_micros(self.rtt_us));
        let same = (1.0 / SAME_RTT..=SAME_RTT).contains(&ratio) && self.is_fresh();
        same.then(|| Remembered { rtt, rate: Rate::bits_per_sec(self.rate_bps), streams: self.streams })
    }

    fn is_sound(&self) -> bool {
        // A time in the future would keep the path for ever.
        (1..=MAX_REMEMBERED_STREAMS).contains(&self.streams) && self.rtt_us > 0 && self.at <= now()
    }
}

/// The stored paths at the time of reading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paths(Vec<KnownPath>);

impl Paths {
    /// Reads the file; skips invalid entries. A missing file yields no paths.
    ///
    /// # Errors
    /// [`MemoryError`], except for [`MemoryError::Write`].
    pub fn read(file: &Path) -> Result<Self, MemoryError> {
        let mut text = Vec::new();
        let opened =
            input_file::open(file).and_then(|open| open.take(LARGEST.get() + 1).read_to_end(&mut text));
        match opened {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(MemoryError::Read { path: file.to_owned(), source }),
        }
        let damaged = |why: String| MemoryError::Damaged { path: file.to_owned(), why };
        if text.len() as u64 > LARGEST.get() {
            return Err(damaged(format!("it is larger than {LARGEST}")));
        }
        let Version { version } =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if version != VERSION {
            return Err(MemoryError::Version { path: file.to_owned(), version });
        }
        let Document { mut paths, .. } =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        paths.retain(KnownPath::is_sound);
        Ok(Self(paths))
    }

    /// Returns the stored path to a server.
    pub fn to(&self, endpoint: &Endpoint) -> Option<&KnownPath> {
        self.0.iter().find(|path| path.endpoint == *endpoint)
    }
}

/// Stores a path in place of an earlier measurement; replaces a damaged file.
///
/// Concurrent transfers, of one process or of several, take turns.
///
/// # Errors
/// [`MemoryError::Write`], [`MemoryError::Read`] and [`MemoryError::Version`].
pub fn keep(file: &Path, path: KnownPath) -> Result<(), MemoryError> {
    let locked = lock(file, PATIENCE);
    let _locked = locked.map_err(|source| MemoryError::Write { path: file.to_owned(), source })?;
    let Paths(mut paths) = match Paths::read(file) {
        Err(MemoryError::Damaged { .. }) => Paths::default(),
        read => read?,
    };
    paths.retain(|other| other.endpoint != path.endpoint);
    paths.push(path);
    paths.sort_by_key(|path| std::cmp::Reverse(path.at));
    paths.truncate(MAX_PATHS);
    let written = serde_json::to_vec_pretty(&Document { version: VERSION, paths })
        .map_err(io::Error::from)
        // Other users must not see which servers a user fetches from.
        .and_then(|text| atomic_file::replace(file, &text, 0o600));
    written.map_err(|source| MemoryError::Write { path: file.to_owned(), source })
}

/// Locks the path memory against other transfers until the result is dropped. The lock is a
/// separate file that stays, because the path memory is replaced. Waits for `patience` at most.
fn lock(file: &Path, patience: Duration) -> io::Result<File> {
    fs::create_dir_all(parent(file))?;
    let lock =
        File::options().write(true).create(true).truncate(false).mode(0o600).open(beside(file, ".lock"))?;
    let until = Instant::now() + patience;
    loop {
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            // Some network file systems have no locks: of two paths stored at once, one may be
            // lost.
            Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => return Ok(lock),
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(RETRY),
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "another transfer holds its lock"));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn parent(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the path of a file in the same directory, with `suffix` after its name.
fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(suffix);
    parent(file).join(name)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Rtt = |ms| Rtt::new(Duration::from_millis(ms));

    fn path(host: &str, at: u64) -> KnownPath {
        let found = Remembered { rtt: MS(100), rate: Rate::bits_per_sec(1_000_000_000), streams: 16 };
        let endpoint = Endpoint { host: host.to_owned(), port: 80, upload: false };
        KnownPath { at, ..KnownPath::new(endpoint, found, Bytes::mib(64), Bytes::mib(20)) }
    }

    fn memory() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("paths.json");
        (dir, file)
    }

    fn recall(file: &Path, endpoint: &Endpoint) -> Result<Option<KnownPath>, MemoryError> {
        Paths::read(file).map(|paths| paths.to(endpoint).cloned())
    }

    #[test]
    fn path_is_found_by_host_and_port_until_it_expires() {
        let (dir, _) = memory();
        let file = dir.path().join("state/longhaul/paths.json");
        let endpoint = Endpoint::of(&"http://h/a?b".parse().unwrap()).unwrap();
        assert_eq!(recall(&file, &endpoint).unwrap(), None);
        keep(&file, path("h", now() - 5)).unwrap();
        keep(&file, path("other", now())).unwrap();
        let newer = KnownPath { streams: 8, ..path("h", now()) };
        keep(&file, newer.clone()).unwrap();
        assert_eq!(recall(&file, &endpoint).unwrap(), Some(newer.clone()));
        assert_eq!(recall(&file, &Endpoint { port: 81, ..endpoint }).unwrap(), None);
        assert_eq!(newer.still_holds(MS(130)).unwrap().streams, 8);
        assert_eq!([MS(200), MS(10), Rtt::default()].map(|rtt| newer.still_holds(rtt)), [None; 3]);
        assert_eq!(path("h", 0).still_holds(MS(100)), None, "too old");
        let known = HeldRate { rate: Rate::bits_per_sec(1_000_000_000), rtt: MS(100) };
        assert_eq!((newer.pace(), newer.paced().pace()), (None, Some(known)));
        assert_eq!(path("h", 0).paced().pace(), None, "too old");
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 2, "the file and its lock");
    }

    #[test]
    fn paths_stored_concurrently_are_all_kept_and_the_wait_for_the_lock_times_out() {
        let (_dir, file) = memory();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (file, name) = (&file, move |n| format!("h{thread}-{n}"));
                scope.spawn(move || (0..10).for_each(|n| keep(file, path(&name(n), 1000 + n)).unwrap()));
            }
        });
        assert_eq!(Paths::read(&file).unwrap().0.len(), 80);
        (0..MAX_PATHS as u64 + 5).for_each(|n| keep(&file, path(&format!("h{n}"), 2000 + n)).unwrap());
        let Paths(known) = Paths::read(&file).unwrap();
        assert_eq!((known.len(), known.last().unwrap().at), (MAX_PATHS, 2005), "the oldest are dropped");
        let held = lock(&file, Duration::ZERO).unwrap();
        let error = lock(&file, Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(held);
        assert!(lock(&file, Duration::ZERO).is_ok());
    }

    #[test]
    fn damaged_file_is_replaced_a_later_version_is_not_and_an_invalid_path_is_skipped() {
        let (_dir, file) = memory();
        let endpoint = path("h", 1).endpoint;
        let large = vec![b' '; LARGEST.as_usize() + 1];
        for text in [&b""[..], b"{", b"[]", b"\xff", br#"{"version":1}"#, &large] {
            fs::write(&file, text).unwrap();
            assert!(matches!(recall(&file, &endpoint), Err(MemoryError::Damaged { .. })));
            keep(&file, path("h", now())).unwrap();
            assert!(recall(&file, &endpoint).unwrap().is_some());
        }
        let later = br#"{"version":2,"paths":"elsewhere"}"#;
        fs::write(&file, later).unwrap();
        assert!(matches!(recall(&file, &endpoint), Err(MemoryError::Version { version: 2, .. })));
        assert!(keep(&file, path("h", 1)).is_err());
        assert_eq!(fs::read(&file).unwrap(), later);
        let paths = vec![
            KnownPath { streams: 0, ..path("none", 1) },
            KnownPath { rtt_us: 0, ..path("near", 1) },
            path("future", now() + 1000),
            path("sound", 1),
        ];
        fs::write(&file, serde_json::to_vec(&Document { version: VERSION, paths }).unwrap()).unwrap();
        // No warning is given, and the other paths remain valid.
        assert_eq!(Paths::read(&file).unwrap(), Paths(vec![path("sound", 1)]));
    }
}
