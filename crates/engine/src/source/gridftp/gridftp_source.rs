//! A file on an FTP or GridFTP server: found out by the login's flight, fetched by ranges.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_core::event::Event;
use longhaul_core::identity::Identity;
use longhaul_core::proto::http::FileName;
use longhaul_core::proto::metalink::Pieces;
use longhaul_core::ranges::ByteRange;
use longhaul_core::retry::Backoff;
use longhaul_core::units::{Bytes, Rtt};
use longhaul_sys::tcp_info;
use url::Url;

use super::error::FtpError;
use super::login::Door;
use super::passive;
use super::remote_address::RemoteAddress;
use super::remote_state::RemoteState;
use super::sessions::{Session, Sessions};
use super::unproved::compare;
use super::worker::GridFtpWorker;
use crate::cancel::Cancel;
use crate::failure::FailureKind;
use crate::path_memory::{Endpoint, KnownPath, Paths};
use crate::source::http::{SafeUrl, SourceOptions};
use crate::source::{Ask, Description, Source, StreamPeer, StreamWorker};
use crate::threads::lock;
use crate::transfer::Streams;
use crate::transfer::error::{Cause, Retry, SourceError};

/// From this RTT on a window or a send buffer may be what limits a connection, so that several may pay.
const LONG_RTT: Rtt = Rtt::new(std::time::Duration::from_millis(5));
/// The window in force before anything has arrived, where the kernel does not tell it (`tcp_rmem[1]` / 2).
const FIRST_WINDOW: Bytes = Bytes::kib(64);

/// One URL of a file.
pub(crate) struct GridFtpSource<'e> {
    url: Url,
    shown: String,
    options: SourceOptions,
    sessions: &'e Sessions,
    paths: Arc<Paths>,
    described: Mutex<Option<Arc<Described>>>,
    /// What is left to the first worker.
    first: Mutex<Option<First>>,
    /// The server cannot connect to this host: MODE E is of no use.
    unreached: AtomicBool,
}

/// What the login has settled.
pub(super) struct Described {
    pub(super) state: RemoteState,
    /// Whether the file comes by ranges that may be combined; else by one RETR, from its start.
    pub(super) by_ranges: bool,
    /// Whether the server sends over several connections that it opens.
    extended: bool,
}

/// The session that has described the file, and what is to be leased before anything else.
pub(super) struct First {
    pub(super) session: Session,
    pub(super) range: ByteRange,
}

impl<'e> GridFtpSource<'e> {
    pub(crate) fn new(url: Url, options: SourceOptions, sessions: &'e Sessions, paths: Arc<Paths>) -> Self {
        Self {
            shown: SafeUrl::of(&url).to_string(),
            url,
            options,
            sessions,
            paths,
            described: Mutex::default(),
            first: Mutex::default(),
            unreached: AtomicBool::new(false),
        }
    }

    /// Returns how to reach and to log in to the server.
    pub(super) fn door(&self) -> Result<Door<'_>, FtpError> {
        Door::new(RemoteAddress::of(&self.url)?, &self.options.client, self.sessions)
    }

    /// Returns what the login has settled.
    pub(super) fn described(&self) -> Result<Arc<Described>, SourceError> {
        let out_of_order = || {
            let message = format!("{} was used before it was described", self.shown);
            SourceError::new(FailureKind::Internal, Retry::Never, Cause::Connection, message)
        };
        lock(&self.described).clone().ok_or_else(out_of_order)
    }

    pub(super) fn take_first(&self) -> Option<First> {
        lock(&self.first).take()
    }

    /// Keeps a session for further files.
    pub(super) fn keep(&self, session: Session) {
        self.sessions.keep(session);
    }

    /// Notes that the server cannot connect to this host.
    pub(super) fn set_unreached(&self) {
        self.unreached.store(true, Ordering::Relaxed);
    }

    /// Returns whether MODE E is used: one worker, and as many data connections as streams are wanted.
    pub(super) fn uses_extended_mode(&self) -> bool {
        let extended = lock(&self.described).as_ref().is_some_and(|described| described.extended);
        extended && !self.unreached.load(Ordering::Relaxed)
    }

    fn recall(&self) -> Option<&KnownPath> {
        self.paths.to(&Endpoint::of(&self.url)?)
    }

    /// Tries again where the server was merely slow or busy; one that cannot be reached now is not there.
    fn open(&self, door: &Door<'_>, ask: &Ask<'_>) -> Result<(Session, RemoteState), SourceError> {
        let mut backoff = Backoff::new(self.options.retries);
        loop {
            let error = match door.open(ask.cancel) {
                Ok(opened) => return Ok(opened),
                Err(error) => SourceError::from(error),
            };
            if !ask.waits || error.retry != Retry::Backoff || error.cause == Cause::Unreachable {
                return Err(error);
            }
            let Some(wait) = backoff.failed(None, fastrand::f64()) else { return Err(error) };
            (ask.emit)(&Event::Retrying { stream: 0, reason: error.to_string(), wait });
            if ask.cancel.sleep(wait) {
                return Err(SourceError::interrupted());
            }
        }
    }

    /// Returns whether several streams may share the file: on a short path one has it all, where their number is free.
    fn is_shared(&self, rtt: Rtt) -> bool {
        let several = |known: &KnownPath| known.still_holds(rtt).is_some_and(|path| path.streams > 1);
        match self.options.streams {
            Streams::Fixed(1) => false,
            Streams::Fixed(_) | Streams::Apt(_) => true,
            Streams::Auto => rtt >= LONG_RTT || self.recall().is_some_and(several),
        }
    }

    fn description(&self, session: &Session, state: &RemoteState, ask: &Ask<'_>) -> Description {
        let socket = session.control.transport().socket();
        let kernels = || tcp_info::read(socket).ok().and_then(|tcp| tcp.rcv_wnd());
        let rtt = session.control.rtt().unwrap_or_default();
        let assumed = self.options.assume_unchanged.then_some(Identity::AssumedUnchanged);
        let identity = state.identity().or(assumed).filter(|_| state.size.is_some());
        let by_ranges = identity.is_some();
        let first = match (&ask.resume, state.size) {
            (Some(resume), _) if by_ranges => ByteRange::new(resume.gap.start(), resume.gap.start()),
            _ if by_ranges => ByteRange::new(0, 0),
            (_, size) => ByteRange::new(0, size.map_or(u64::MAX, Bytes::get)),
        };
        Description {
            size: state.size,
            modified: state.modified,
            identity,
            name: FileName::from_url_path(self.url.path()).map(|name| name.as_str().to_owned()),
            divisible: by_ranges && self.is_shared(rtt),
            first,
            whole: !by_ranges,
            shown_content: format!("{} ({state})", self.shown),
            rtt,
            first_window: self.options.client.recv_buffer.or_else(kernels).unwrap_or(FIRST_WINDOW),
            paced: false,
            endpoint: Endpoint::of(&self.url),
            known: self.recall().cloned(),
            corrected: None,
            duplicates: Vec::new(),
            digest: None,
        }
    }
}

/// Returns whether a server out there cannot connect to this host: its address is translated on the way.
fn is_behind_nat(local: IpAddr, peer: IpAddr) -> bool {
    let is_private = |address: IpAddr| match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_private() || v4.is_loopback() || v4.is_link_local(),
        // Unique local addresses (RFC 4193).
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local() || v6.octets()[0] & 0xfe == 0xfc,
    };
    is_private(local) && !is_private(peer)
}

impl StreamPeer for GridFtpSource<'_> {
    fn shown(&self) -> &str {
        &self.shown
    }

    fn worker(&self) -> Box<dyn StreamWorker + '_> {
        Box::new(GridFtpWorker::new(self))
    }

    fn multiplexes(&self) -> bool {
        self.uses_extended_mode()
    }
}

impl Source for GridFtpSource<'_> {
    fn describe(&self, ask: &Ask<'_>) -> Result<Description, SourceError> {
        let door = self.door()?;
        let (session, state) = self.open(&door, ask)?;
        let description = self.description(&session, &state, ask);
        let by_ranges = !description.whole;
        let features = &session.features;
        let extended = by_ranges
            && features.extended_mode()
            && features.partial_retrieve()
            && !is_behind_nat(session.control.local.ip(), session.control.peer.ip());
        *lock(&self.described) = Some(Arc::new(Described { state, by_ranges, extended }));
        *lock(&self.first) = Some(First { session, range: description.first });
        Ok(description)
    }

    fn sample(&self, part: ByteRange, cancel: &Cancel) -> Result<Vec<u8>, SourceError> {
        let described = self.described()?;
        let door = self.door()?;
        let (mut session, state) = door.open(cancel)?;
        compare(&described.state, &state, door.at())?;
        Ok(passive::read_part(&door, &mut session, part, cancel)?)
    }

    fn published_pieces(&self, _cancel: &Cancel) -> Result<Option<Pieces>, SourceError> {
        Ok(None)
    }

    fn abandon(&self) {
        if let Some(first) = self.take_first() {
            // It has only logged in and looked.
            self.keep(first.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_address_is_not_reached_from_a_public_one() {
        for (local, peer, behind) in [
            ("10.1.2.3", "192.0.2.1", true),
            ("10.1.2.3", "10.9.9.9", false),
            ("127.0.0.1", "127.0.0.1", false),
            ("192.0.2.1", "198.51.100.1", false),
            ("fd00::1", "2001:db8::1", true),
            ("2001:db8::1", "2001:db8::2", false),
        ] {
            assert_eq!(
                is_behind_nat(local.parse().unwrap(), peer.parse().unwrap()),
                behind,
                "{local} {peer}"
            );
        }
    }
}
