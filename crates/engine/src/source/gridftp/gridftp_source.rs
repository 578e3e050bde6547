//! A file on an FTP or GridFTP server: described by the login's replies, fetched by ranges.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::checksum::{Algorithm, Checksum};
use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::identity::Identity;
use longhaul_core::proto::gridftp::parse_checksum;
use longhaul_core::proto::http::FileName;
use longhaul_core::proto::metalink::Pieces;
use longhaul_core::ranges::ByteRange;
use longhaul_core::units::{Bytes, Rtt};
use parking_lot::Mutex;
use url::Url;

use super::error::FtpError;
use super::login::ServerAccess;
use super::passive_connection;
use super::remote_address::RemoteAddress;
use super::remote_state::RemoteState;
use super::sessions::{FtpSessions, Session};
use super::unproved::compare;
use super::worker::GridFtpWorker;
use crate::cancel::Cancel;
use crate::path_memory::{Endpoint, KnownPath, Paths};
use crate::retry_loop::Retries;
use crate::source::http::{SafeUrl, SourceOptions};
use crate::source::{
    DescribeRequest, Description, FileDescription, Published, RangeAccess, ServerPath, Source, StreamPeer,
    StreamWorker, first_window, may_pay_several,
};
use crate::transfer::Streams;

/// One URL of a file.
pub(crate) struct GridFtpSource<'e> {
    url: Url,
    shown: String,
    options: SourceOptions,
    sessions: &'e FtpSessions,
    paths: Arc<Paths>,
    described: Mutex<Option<Arc<LoginResult>>>,
    /// The session that described the file, for the first worker, and the range to lease first.
    first: Mutex<Option<(Session, ByteRange)>>,
    /// Whether MODE E is unusable although the server offers it: the server cannot connect to this
    /// host.
    pub(super) is_stream_mode_only: AtomicBool,
    /// Whether a worker has found another file.
    pub(super) has_changed: AtomicBool,
}

/// The results of the login.
pub(super) struct LoginResult {
    pub(super) state: RemoteState,
    /// Whether the file is fetched by ranges that may be combined; if not, by one RETR from its
    /// start.
    pub(super) by_ranges: bool,
    /// Whether the server sends over several connections that it opens.
    extended: bool,
}

impl<'e> GridFtpSource<'e> {
    pub(crate) fn new(
        url: Url,
        options: SourceOptions,
        sessions: &'e FtpSessions,
        paths: Arc<Paths>,
    ) -> Self {
        Self {
            shown: SafeUrl::of(&url).to_string(),
            url,
            options,
            sessions,
            paths,
            described: Mutex::default(),
            first: Mutex::default(),
            is_stream_mode_only: AtomicBool::new(false),
            has_changed: AtomicBool::new(false),
        }
    }

    /// Returns the access to the server, with its login.
    pub(super) fn access(&self) -> Result<ServerAccess<'_>, FtpError> {
        ServerAccess::new(RemoteAddress::of(&self.url)?, &self.options.transfer.client, self.sessions)
    }

    /// Returns the results of the login.
    pub(super) fn described(&self) -> Result<Arc<LoginResult>, Failure> {
        let out_of_order = || {
            let message = format!("{} was used before it was described", self.shown);
            Failure::new(FailureKind::Internal, message)
        };
        self.described.lock().clone().ok_or_else(out_of_order)
    }

    pub(super) fn take_first(&self) -> Option<(Session, ByteRange)> {
        self.first.lock().take()
    }

    /// Keeps a session for further files.
    pub(super) fn keep(&self, session: Session) {
        self.sessions.keep(session);
    }

    /// Returns whether MODE E is used, with one worker and a data connection for each stream.
    pub(super) fn uses_extended_mode(&self) -> bool {
        let extended = self.described.lock().as_ref().is_some_and(|described| described.extended);
        extended && !self.is_stream_mode_only.load(Ordering::Relaxed)
    }

    fn recall(&self) -> Option<&KnownPath> {
        self.paths.to(&Endpoint::of(&self.url)?)
    }

    /// Retries if the server was only slow or busy, but not if it is unreachable.
    fn open(
        &self,
        access: &ServerAccess<'_>,
        request: &DescribeRequest<'_>,
    ) -> Result<(Session, LoginResult), Failure> {
        let retries = Retries {
            most: self.options.transfer.retries,
            stream: 0,
            emit: request.emit,
            rest: request.cancel,
        };
        let attempt = |(): &mut (), _: &mut _| Ok(self.open_once(access, request.cancel)?);
        retries.repeat(&mut (), attempt, |(), error: &Failure| error.first_retry().unless(!request.waits))
    }

    /// Logs in, and finds whether ranges can be fetched.
    fn open_once(
        &self,
        access: &ServerAccess<'_>,
        cancel: &Cancel,
    ) -> Result<(Session, LoginResult), FtpError> {
        let (mut session, state) = access.open(cancel)?;
        let features = &session.features;
        let extended = features.extended_mode()
            && features.partial_retrieve()
            && !is_behind_nat(session.control.local.ip(), session.control.peer.ip());
        let by_ranges = extended || session.restarts(cancel)?;
        Ok((session, LoginResult { state, by_ranges, extended }))
    }

    /// Returns whether several streams may share the file. On a short path, one stream fetches all
    /// if the number is free.
    fn is_shared(&self, rtt: Rtt) -> bool {
        match self.options.transfer.streams {
            Streams::Fixed(1) => false,
            Streams::Fixed(_) | Streams::Apt(_) => true,
            Streams::Auto => may_pay_several(rtt, self.recall()),
        }
    }

    fn description(
        &self,
        session: &Session,
        opened: &LoginResult,
        request: &DescribeRequest<'_>,
    ) -> Description {
        let state = &opened.state;
        let socket = session.control.transport.socket();
        let rtt = session.control.rtt().unwrap_or_default();
        // Some servers state 0 for what they make while they send it.
        let size = state.size.filter(|size| *size > Bytes::ZERO);
        let assumed = self.options.assume_unchanged.then_some(Identity::AssumedUnchanged);
        let identity = state.identity().or(assumed).filter(|_| size.is_some());
        let by_ranges = identity.is_some() && opened.by_ranges;
        let first = match (&request.resume, size) {
            (Some(resume), _) if by_ranges => ByteRange::new(resume.gap.start(), resume.gap.start()),
            _ if by_ranges => ByteRange::new(0, 0),
            (_, size) => ByteRange::new(0, size.map_or(u64::MAX, Bytes::get)),
        };
        let file = FileDescription {
            size,
            identity,
            state: state.identity().map(|identity| identity.to_string()),
            modified: state.modified,
            name: FileName::from_url_path(self.url.path()).map(|name| name.as_str().to_owned()),
            is_directory: false,
            shown_content: format!("{} ({state})", self.shown),
        };
        let ranges = RangeAccess {
            first,
            divisible: by_ranges && self.is_shared(rtt),
            resumable: by_ranges,
            whole: !by_ranges,
        };
        let path = ServerPath {
            rtt,
            first_window: first_window(self.options.transfer.client.recv_buffer, socket),
            pace: None,
            endpoint: Endpoint::of(&self.url),
            known: self.recall().cloned(),
            corrected: None,
        };
        let digest_on_request = session.features.best_checksum();
        let published = Published { duplicates: Vec::new(), digest: None, digest_on_request };
        Description { file, ranges, path, published }
    }
}

/// Returns whether a remote server cannot connect to this host because the local address is
/// translated on the path.
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
    fn describe(&self, request: &DescribeRequest<'_>) -> Result<Description, Failure> {
        let (session, mut opened) = self.open(&self.access()?, request)?;
        let description = self.description(&session, &opened, request);
        opened.by_ranges = !description.ranges.whole;
        opened.extended &= opened.by_ranges;
        *self.described.lock() = Some(Arc::new(opened));
        *self.first.lock() = Some((session, description.ranges.first));
        Ok(description)
    }

    fn sample(&self, part: ByteRange, cancel: &Cancel) -> Result<Vec<u8>, Failure> {
        let described = self.described()?;
        let access = self.access()?;
        let (mut session, state) = access.open(cancel)?;
        compare(&described.state, &state, access.at())?;
        Ok(passive_connection::read_part(&access, &mut session, part, cancel)?)
    }

    fn published_pieces(&self, _cancel: &Cancel) -> Result<Option<Pieces>, Failure> {
        Ok(None)
    }

    fn digest(&self, algorithm: Algorithm, cancel: &Cancel) -> Result<Option<Checksum>, Failure> {
        let described = self.described()?;
        let access = self.access()?;
        let (mut session, state) = access.open(cancel)?;
        compare(&described.state, &state, access.at())?;
        let file = (&access.address.path[..], state.size.unwrap_or_default());
        let mut digest = None;
        for reply in session.checksums(algorithm, &[None], file, cancel)? {
            digest = parse_checksum(&reply, algorithm);
            if digest.is_none() {
                session.control.require_positive(reply, "CKSM")?;
            }
        }
        self.keep(session);
        Ok(digest)
    }

    fn abandon(&self) {
        if let Some((session, _)) = self.take_first() {
            // The session has only logged in and requested the state of the file.
            self.keep(session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_address_is_unreachable_from_a_public_one() {
        for (local, peer, behind) in [
            ("10.1.2.3", "192.0.2.1", true),
            ("10.1.2.3", "10.9.9.9", false),
            ("127.0.0.1", "127.0.0.1", false),
            ("192.0.2.1", "198.51.100.1", false),
            ("fd00::1", "2001:db8::1", true),
            ("2001:db8::1", "2001:db8::2", false),
        ] {
            let found = is_behind_nat(local.parse().unwrap(), peer.parse().unwrap());
            assert_eq!(found, behind, "{local} {peer}");
        }
    }
}
