//! Connects a client to the server or its proxy, through tunnel and TLS if needed.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use longhaul_core::proto::socks5::{SocksError, SocksTarget};
use url::Host;

use super::Client;
use crate::connect::{ConnectError, Deadline, SocketSettings, Transport, dial};
use crate::source::http::ResolvedUrl;
use crate::source::http::buffered_transport::BufferedTransport;
use crate::source::http::connection::Connection;
use crate::source::http::connection_key::ConnectionKey;
use crate::source::http::error::HttpError;
use crate::source::http::proxy::{Proxy, ProxyKind};
use crate::source::http::safe_url::UrlAndPeer;
use crate::source::http::tls;

impl Client {
    pub(super) fn key(&self, target: &ResolvedUrl) -> Result<(ConnectionKey, Option<Proxy>), HttpError> {
        let proxy = self.config.proxies.for_url(target.url())?;
        let key = ConnectionKey {
            https: target.is_https(),
            server: target.endpoint()?,
            proxy: proxy.as_ref().map(|proxy| (proxy.kind, proxy.host.clone(), proxy.port)),
            tls: self.config.tls(),
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
        if !target.is_resolved() {
            let found = self.caches.hosts.resolve(host, port, &self.config.addresses, deadline, tick);
            let unknown = |error: ConnectError| match proxy {
                Some(proxy) => error.of_proxy(proxy.variable),
                None => error,
            };
            target.set_addresses(found.map_err(unknown)?);
        }
        let mut refused = None;
        for behind in self.socks_targets(server, proxy, deadline)? {
            let mut candidates = target.candidates();
            self.caches.hosts.sort(&mut candidates);
            let socket = dial(&name, &candidates, self.socket_settings(), deadline);
            if socket.is_err() {
                // The host may have other addresses by now.
                target.set_addresses(Vec::new());
                self.caches.hosts.forget(host, port);
            }
            match self.established(target, key.clone(), proxy, behind, socket?, deadline) {
                // The proxy may reach another address of the server.
                Err(error @ HttpError::Socks { source: SocksError::Refused(_), .. }) => {
                    refused.get_or_insert(error);
                }
                connected => return connected,
            }
        }
        Err(refused.unwrap_or(HttpError::Cancelled))
    }

    /// Returns the targets for a SOCKS proxy in the order of attempts: the server's name or its addresses; a single
    /// `None` for another proxy or none.
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

    pub(super) fn socket_settings(&self) -> SocketSettings<'_> {
        SocketSettings {
            recv_buffer: self.config.recv_buffer,
            congestion: self.config.congestion.as_deref(),
            tick: self.config.timeouts.tick,
        }
    }

    /// Creates a connection from a connected socket, through a proxy's tunnel and TLS if needed. `behind` is the target
    /// for a SOCKS proxy.
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
        target.prefer(peer);
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
