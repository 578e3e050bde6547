//! Connects a client to the server or its proxy, through tunnel and TLS if needed.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use longhaul_core::failure::{Cause, Failure};
use longhaul_core::proto::socks5::SocksTarget;
use url::{Host, Url};

use super::{Client, ClientAhead};
use crate::cancel::Cancel;
use crate::connect::{AheadConnection, Deadline, Transport, dial};
use crate::source::http::ResolvedUrl;
use crate::source::http::authentication::tls;
use crate::source::http::connection::buffered_transport::BufferedTransport;
use crate::source::http::connection::{Connection, ConnectionKey};
use crate::source::http::error::HttpError;
use crate::source::http::target::proxy::{Proxy, ProxyKind};
use crate::source::http::target::safe_url::UrlAndPeer;

impl Client {
    /// Connects to the target of an opened URL, for a further stream; follows no redirects.
    ///
    /// Prefers a kept connection, which the server may close just before the request: see
    /// [`was_closed_while_idle`](Connection::was_closed_while_idle). Addresses resolved earlier are
    /// tried in order, starting with the one that accepted the last connection; after a failure the
    /// host is resolved again.
    ///
    /// # Errors
    /// The errors of resolving, connecting to and verifying the server.
    pub fn connect(&self, target: &mut ResolvedUrl, cancel: &Cancel) -> Result<Connection, HttpError> {
        self.connect_by(target, &Deadline::new(cancel, self.config.timeouts.connect))
    }

    fn connect_by(&self, target: &mut ResolvedUrl, deadline: &Deadline<'_>) -> Result<Connection, HttpError> {
        let (key, proxy) = self.key(target)?;
        let allows = |peer| target.addresses.allows(peer);
        let kept = self.caches.idle.take(&key, allows);
        let early = || self.caches.early.take(&key, allows, deadline, self.config.timeouts.tick);
        if let Some(mut connection) = kept.or_else(early) {
            connection.cancel = deadline.cancel().clone();
            connection.timeouts = self.config.timeouts;
            self.aim(&mut connection, target)?;
            return Ok(connection);
        }
        self.dial(target, key, proxy.as_ref(), deadline)
    }

    /// Connects to the server of `url`, and holds the connection for a request until it is too old.
    /// At most a few are held at once.
    ///
    /// # Errors
    /// That of a URL of another scheme.
    pub(in crate::source::http) fn hold_early(&self, url: &Url) -> Result<(), HttpError> {
        let mut target = self.target(url)?;
        let (key, proxy) = self.key(&target)?;
        self.caches.early.hold(&key, |key, cancel| {
            let deadline = Deadline::new(cancel, self.config.timeouts.connect);
            self.dial(&mut target, key, proxy.as_ref(), &deadline).ok()
        });
        Ok(())
    }

    /// Connects like [`connect`](Self::connect), by `ahead` if it leads to the target and is
    /// established.
    pub(in crate::source::http) fn connect_over(
        &self,
        target: &mut ResolvedUrl,
        ahead: ClientAhead,
        cancel: &Cancel,
    ) -> Result<Connection, HttpError> {
        let (key, proxy) = self.key(target)?;
        let ClientAhead { key: begun_for, connection } = ahead;
        if !begun_for.nearly_fits(&key) || !target.addresses.allows(connection.peer()) {
            return self.connect(target, cancel);
        }
        let peer = connection.peer();
        let deadline = Deadline::new(cancel, self.config.timeouts.connect);
        match connection.finish(self.config.sockets(), &deadline) {
            Some(socket) => {
                let behind =
                    self.socks_targets(&key.server, proxy.as_ref(), &deadline)?.into_iter().next().flatten();
                self.established(target, begun_for, proxy.as_ref(), behind, (socket, peer), &deadline)
            }
            None => self.connect_by(target, &deadline),
        }
    }

    /// Starts up to `count` further connections to `peer`, the target's address that `connection`
    /// leads to.
    pub(in crate::source::http) fn connect_ahead(
        &self,
        target: &ResolvedUrl,
        peer: SocketAddr,
        count: usize,
    ) -> Vec<ClientAhead> {
        let Ok((key, _)) = self.key(target) else { return Vec::new() };
        let begin = || AheadConnection::start(peer, self.config.sockets());
        let begun = (0..count).map_while(|_| begin().ok());
        begun.map(|connection| ClientAhead { key: key.clone(), connection }).collect()
    }

    /// Connects without using a kept connection, and closes those to the origin, after a request
    /// failed on one of them.
    ///
    /// # Errors
    /// See [`connect`](Self::connect).
    pub fn connect_fresh(&self, target: &mut ResolvedUrl, cancel: &Cancel) -> Result<Connection, HttpError> {
        let (key, proxy) = self.key(target)?;
        self.caches.idle.close(&key);
        self.dial(target, key, proxy.as_ref(), &Deadline::new(cancel, self.config.timeouts.connect))
    }

    pub(super) fn key(&self, target: &ResolvedUrl) -> Result<(ConnectionKey, Option<Proxy>), HttpError> {
        let proxy = self.config.proxies.for_url(target.url())?;
        let server = target.endpoint()?;
        let reached = proxy.as_ref().map_or(&server.0, |proxy| &proxy.host);
        let key = ConnectionKey {
            https: target.is_https(),
            zone: self.config.addresses.zone(reached),
            server,
            proxy: proxy.as_ref().map(|proxy| (proxy.kind, proxy.host.clone(), proxy.port)),
            tls: self.config.tls.clone(),
            recv_buffer: self.config.recv_buffer,
            congestion: self.config.congestion.clone(),
            tick: self.config.timeouts.tick,
        };
        Ok((key, proxy))
    }

    pub(super) fn dial(
        &self,
        target: &mut ResolvedUrl,
        key: ConnectionKey,
        proxy: Option<&Proxy>,
        deadline: &Deadline<'_>,
    ) -> Result<Connection, HttpError> {
        let server = &key.server;
        let (host, port, name) = match proxy {
            Some(proxy) => {
                (&proxy.host, proxy.port, format!("the proxy {} of {}", proxy.url, proxy.variable))
            }
            None => (&server.0, server.1, format!("{}:{}", server.0, server.1)),
        };
        let tick = self.config.timeouts.tick;
        if !target.addresses.is_resolved() {
            let found = self.caches.hosts.resolve(host, port, &self.config.addresses, deadline, tick);
            let unknown = |failure: Failure| match proxy {
                Some(proxy) if failure.cause != Cause::Interrupted => {
                    let message = format!("{failure}; it is the proxy of {}", proxy.variable);
                    Failure::new(failure.kind, message).caused_by(failure.cause).with_retry(failure.retry)
                }
                _ => failure,
            };
            target.addresses.set(found.map_err(unknown)?);
        }
        let mut refused = None;
        for behind in self.socks_targets(server, proxy, deadline)? {
            let mut candidates = target.addresses.candidates();
            self.caches.hosts.sort(&mut candidates, Instant::now());
            let socket = dial(&name, &candidates, self.config.sockets(), deadline);
            if socket.is_err() {
                // The host may have other addresses by now.
                target.addresses.set(Vec::new());
                self.caches.hosts.forget(host, port);
            }
            match self.established(target, key.clone(), proxy, behind, socket?, deadline) {
                // The proxy may reach another address of the server.
                Err(error @ HttpError::SocksRefused(_)) => {
                    refused.get_or_insert(error);
                }
                connected => return connected,
            }
        }
        Err(refused.unwrap_or_else(|| Failure::interrupted().into()))
    }

    /// Returns the targets for a SOCKS proxy in the order of attempts: the server's name or its
    /// addresses; a single `None` for another proxy or none.
    pub(super) fn socks_targets(
        &self,
        (host, port): &(Host<String>, u16),
        proxy: Option<&Proxy>,
        deadline: &Deadline<'_>,
    ) -> Result<Vec<Option<SocksTarget>>, HttpError> {
        let kind = proxy.map_or(ProxyKind::Http, |proxy| proxy.kind);
        match (kind, host) {
            (ProxyKind::Http, _) => return Ok(vec![None]),
            (ProxyKind::Socks5h, Host::Domain(name)) => {
                return Ok(vec![Some(SocksTarget::Name(name.clone(), *port))]);
            }
            _ => {}
        }
        let tick = self.config.timeouts.tick;
        let found = self.caches.hosts.resolve(host, *port, &self.config.addresses, deadline, tick)?;
        let targets: Vec<_> = found.into_iter().map(|address| Some(SocksTarget::Address(address))).collect();
        Ok(if targets.is_empty() { vec![Some(SocksTarget::Name(host.to_string(), *port))] } else { targets })
    }

    /// Creates a connection from a connected socket, through a proxy's tunnel and TLS if needed.
    /// `behind` is the target for a SOCKS proxy.
    pub(super) fn established(
        &self,
        target: &mut ResolvedUrl,
        key: ConnectionKey,
        proxy: Option<&Proxy>,
        behind: Option<SocksTarget>,
        (mut socket, peer): (TcpStream, SocketAddr),
        deadline: &Deadline<'_>,
    ) -> Result<Connection, HttpError> {
        let server = &key.server;
        target.addresses.prefer(peer);
        self.check_cleartext_to(target, proxy, peer)?;
        let at = UrlAndPeer { url: target.safe_url(), peer };
        if let Some((proxy, to)) = proxy.zip(behind) {
            socket = proxy.connect_socks(socket, to, &at, deadline)?;
        }
        let proxy = proxy.filter(|proxy| proxy.kind == ProxyKind::Http);
        let transport = if key.https {
            if let Some(proxy) = proxy {
                socket = proxy.tunnel(socket, (&server.0, server.1), &at, deadline)?;
            }
            tls::handshake(socket, self.tls_settings()?, &server.0, &at, deadline)?
        } else {
            Transport::Plain(socket)
        };
        let absolute = proxy.filter(|_| !key.https);
        let request =
            target.request_line(absolute.and_then(|p| p.authorization.as_ref()), absolute.is_some());
        let transport = BufferedTransport::new(transport, at);
        let (timeouts, cancel) = (self.config.timeouts, deadline.cancel().clone());
        Ok(Connection::new(transport, Arc::new(key), request, timeouts, cancel))
    }
}
