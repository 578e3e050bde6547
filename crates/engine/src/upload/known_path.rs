//! The path to the server, as measured by earlier uploads and by this one.

use std::net::TcpStream;
use std::sync::Arc;

use longhaul_core::event::Event;
use longhaul_core::pace::Pace;
use longhaul_core::tune::streams::Remembered;
use longhaul_core::units::{Bytes, Rtt};
use longhaul_sys::tcp_info;
use parking_lot::Mutex;

use super::request::PutRequest;
use crate::known_paths::KnownPaths;
use crate::pacing::{PacingStart, PathMeasurement, PathObserver};
use crate::path_memory::{Endpoint, KnownPath};
use crate::rate_limit::RateLimit;

/// The stored and current measurements of the path to a server.
pub(super) struct UploadPath {
    paths: KnownPaths,
    endpoint: Option<Endpoint>,
    found: Arc<Mutex<Option<FoundPath>>>,
}

/// The measurements of this upload.
#[derive(Debug, Clone, Copy)]
struct FoundPath {
    path: Remembered,
    /// Whether one paced connection has measured the path.
    paced: bool,
}

/// Records the pacing thread's measurements of the only connection.
struct PathRecorder(Arc<Mutex<Option<FoundPath>>>);

impl PathObserver for PathRecorder {
    fn connections(&self) -> u32 {
        1
    }

    fn measured(&self, path: PathMeasurement) {
        let known = path.known;
        let path = Remembered { rtt: known.rtt, rate: known.rate, streams: 1 };
        *self.0.lock() = Some(FoundPath { path, paced: true });
    }
}

impl UploadPath {
    /// Reads the path memory.
    pub(super) fn read(request: &PutRequest, emit: &dyn Fn(&Event)) -> Self {
        let paths = KnownPaths::read(request.transfer.memory.as_deref(), emit);
        Self { paths, endpoint: Endpoint::of_upload(&request.url), found: Arc::default() }
    }

    fn known(&self) -> Option<KnownPath> {
        self.paths.paths().to(self.endpoint.as_ref()?).cloned()
    }

    /// Returns the initial values for several streams on a path that has this RTT now.
    pub(super) fn remembered(&self, rtt: Rtt) -> Option<Remembered> {
        self.known()?.still_holds(rtt)
    }

    /// Returns the initial values for pacing the only connection. Its rate is measured only if no
    /// limit applies but the path's.
    pub(super) fn pacing(&self, request: &PutRequest, socket: &TcpStream) -> PacingStart {
        if request.transfer.pace != Pace::Auto
            || request.transfer.limit.as_ref().and_then(RateLimit::rate).is_some()
        {
            return PacingStart::default();
        }
        let tcp = tcp_info::read(socket).ok();
        let now = tcp.and_then(|tcp| Some((tcp.min_rtt()?, Bytes::new(tcp.tcpi_snd_mss()?))));
        let known = self.known().and_then(|known| known.pace()).zip(now).filter(|(known, (rtt, segment))| {
            // If slow start begins as fast, the stored rate has no advantage.
            known.may_hold_at(*rtt) && known.initial_window(*segment).is_some()
        });
        PacingStart {
            known: known.map(|(known, _)| known.rate),
            first_cap: None,
            observer: Some(Box::new(PathRecorder(Arc::clone(&self.found)))),
        }
    }

    /// Records the measurements of several streams.
    pub(super) fn found(&self, path: Remembered) {
        *self.found.lock() = Some(FoundPath { path, paced: false });
    }

    /// Stores the measurements for the next upload.
    pub(super) fn keep(&self, emit: &dyn Fn(&Event)) {
        let found = *self.found.lock();
        if let Some((FoundPath { path, paced }, endpoint)) = found.zip(self.endpoint.clone()) {
            // Buffers and windows are on the server.
            let known = KnownPath::new(endpoint, path, Bytes::ZERO, Bytes::ZERO);
            self.paths.keep(if paced { known.paced() } else { known }, emit);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::path::Path;
    use std::time::Duration;

    use longhaul_core::units::Rate;

    use super::*;
    use crate::path_memory;
    use crate::transfer::TransferOptions;

    const RTT: Rtt = Rtt::new(Duration::from_millis(100));

    fn request(memory: &Path) -> PutRequest {
        PutRequest {
            path: "f".into(),
            url: "http://h/f".parse().unwrap(),
            reader: crate::send::ReaderChoice::Auto,
            verify: None,
            congestion: None,
            transfer: TransferOptions { memory: Some(memory.to_owned()), ..TransferOptions::default() },
            sessions: Arc::default(),
        }
    }

    #[test]
    fn next_upload_starts_from_stored_measurements() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("paths.json");
        let request = request(&file);
        let read = || UploadPath::read(&request, &|_| {});
        let path = read();
        assert_eq!(path.remembered(RTT), None);
        path.keep(&|_| {});
        assert!(!file.exists(), "nothing was found");
        let found = Remembered { rtt: RTT, rate: Rate::bits_per_sec(1_000_000_000), streams: 9 };
        path.found(found);
        path.keep(&|_| {});
        assert_eq!(read().remembered(RTT), Some(found));
        assert_eq!(read().remembered(Rtt::new(RTT.get() * 3)), None, "another path");
        // Measurements of downloads from this server are stored separately.
        let endpoint = Endpoint::of(&request.url).unwrap();
        let other = Remembered { streams: 3, ..found };
        path_memory::keep(&file, KnownPath::new(endpoint, other, Bytes::ZERO, Bytes::ZERO)).unwrap();
        assert_eq!(read().remembered(RTT), Some(found));
    }

    #[test]
    fn only_a_measured_rate_of_one_connection_starts_the_pacer_and_only_on_the_same_path() {
        let dir = tempfile::tempdir().unwrap();
        let request = request(&dir.path().join("paths.json"));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let now = tcp_info::read(&socket).unwrap().min_rtt().unwrap();
        let rate = Rate::bits_per_sec(900_000_000_000);
        let known = |rtt, paced| {
            let path = UploadPath::read(&request, &|_| {});
            let found = Remembered { rtt, rate, streams: 1 };
            *path.found.lock() = Some(FoundPath { path: found, paced });
            path.keep(&|_| {});
            UploadPath::read(&request, &|_| {}).pacing(&request, &socket).known
        };
        assert_eq!(known(now, true), Some(rate));
        assert_eq!(known(now, false), None);
        assert_eq!(known(Rtt::new(now.get() * 100), true), None);
        let mut limited = request.clone();
        limited.transfer.limit = Some(RateLimit::new(rate));
        assert!(UploadPath::read(&limited, &|_| {}).pacing(&limited, &socket).observer.is_none());
    }
}
