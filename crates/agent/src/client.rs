//! A client of the agent, over its Unix socket.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use longhaul_core::failure::FailureKind;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::net::UnixStream;

use crate::api::{ErrorBody, ErrorDetails, KEEP_ALIVE, SCOPE_HEADER};

/// The timeout for checking that an agent answers.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout for an answer: an offer takes up to 20 s, the addition of 100,000 transfers seconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout for the next event: four intervals of those that an idle agent sends.
const SILENCE_TIMEOUT: Duration = KEEP_ALIVE.saturating_mul(4);

/// A client of the agent.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
    /// Whether the agent is to permit downloads alone.
    downloads_only: bool,
    /// The timeout for an answer.
    timeout: Duration,
}

/// An error of a request.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No agent is running.
    #[error("no agent is running: {} does not answer ({source}); start one with longhaul agent", .socket.display())]
    NotRunning {
        /// The socket.
        socket: PathBuf,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The connection broke, for example because the agent was killed.
    #[error("the agent has ended the connection: {0}; ask again")]
    Connection(String),
    /// The agent was stopped.
    #[error("the agent has been stopped")]
    Stopped,
    /// The agent is frozen, or its host or disk is overloaded.
    #[error(
        "the agent, process {pid}, has not answered within {} s: wait until its host and disk are less busy, or end it with kill -KILL {pid}",
        .waited.as_secs()
    )]
    Silent {
        /// The agent's process id.
        pid: i32,
        /// The time waited.
        waited: Duration,
    },
    /// The agent refused the request.
    #[error("{}{}", .error.message, if .error.advice.is_empty() { String::new() } else { format!("; {}", .error.advice) })]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The error.
        error: ErrorDetails,
    },
    /// The agent's answer is invalid for this version.
    #[error(
        "cannot understand the agent's answer: {0}; it may be of another version: stop it, and it starts anew"
    )]
    Answer(String),
}

impl ClientError {
    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::NotRunning { .. } => FailureKind::Unavailable,
            Self::Connection(_) | Self::Stopped | Self::Silent { .. } => FailureKind::Temporary,
            Self::Refused { status, .. } => match status {
                400 | 415 | 422 => FailureKind::Usage,
                401 | 403 | 421 => FailureKind::Denied,
                404 => FailureKind::NotFound,
                409 => FailureKind::Data,
                _ => FailureKind::Disk,
            },
            Self::Answer(_) => FailureKind::Protocol,
        }
    }
}

impl Client {
    /// Creates a client of the agent at this socket.
    pub fn new(socket: PathBuf) -> Self {
        Self { socket, downloads_only: false, timeout: ANSWER_TIMEOUT }
    }

    /// Permits itself downloads alone: for a program that acts for a browser.
    #[must_use]
    pub fn for_downloads(self) -> Self {
        Self { downloads_only: true, ..self }
    }

    /// Checks that an agent answers. Connecting is not sufficient: the socket of a dying agent
    /// still accepts.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn check(&self) -> Result<(), ClientError> {
        let stream = std::os::unix::net::UnixStream::connect(&self.socket);
        let (mut stream, pid) = self.own(stream)?;
        let mut status = [0; 12];
        let mut ask = || {
            stream.set_read_timeout(Some(CHECK_TIMEOUT))?;
            stream.write_all(
                b"GET /api/v1/settings HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            )?;
            stream.read_exact(&mut status)
        };
        match ask() {
            Ok(()) if status == *b"HTTP/1.1 200" => Ok(()),
            Ok(()) => Err(ClientError::Answer(String::from_utf8_lossy(&status).into_owned())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(ClientError::Silent { pid, waited: CHECK_TIMEOUT })
            }
            Err(error) => Err(ClientError::Connection(error.to_string())),
        }
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        answer(&self.send(Method::GET, path, None).await?)
    }

    /// Sends a POST request with a JSON body.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        answer(&self.send(Method::POST, path, Some(crate::json(body))).await?)
    }

    /// Sends a PATCH request with a JSON body.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        answer(&self.send(Method::PATCH, path, Some(crate::json(body))).await?)
    }

    /// Sends a DELETE request.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn delete(&self, path: &str) -> Result<(), ClientError> {
        self.send(Method::DELETE, path, None).await.map(drop)
    }

    async fn send(&self, method: Method, path: &str, body: Option<String>) -> Result<Bytes, ClientError> {
        let (stream, pid) = self.connect().await?;
        let answer = async {
            let (status, body) = self.open(stream, method, path, body).await?;
            let body = body.collect().await.map_err(|error| ClientError::Connection(error.to_string()))?;
            Ok((status, body.to_bytes()))
        };
        let (status, body) = within(self.timeout, pid, answer).await?;
        if status.is_success() {
            return Ok(body);
        }
        let body = serde_json::from_slice::<ErrorBody>(&body);
        let ErrorBody { error } = body.map_err(|_| ClientError::Answer(status.to_string()))?;
        Err(ClientError::Refused { status: status.as_u16(), error })
    }

    /// Subscribes to the agent's events, which are read by [`EventStream::next`].
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn events(&self) -> Result<EventStream, ClientError> {
        let (stream, pid) = self.connect().await?;
        let opened = self.open(stream, Method::GET, "/api/v1/events", None);
        let (_, body) = within(self.timeout, pid, opened).await?;
        Ok(EventStream { body, pid, timeout: SILENCE_TIMEOUT, text: Vec::new() })
    }

    /// Connects to the agent; returns its process id too.
    async fn connect(&self) -> Result<(UnixStream, i32), ClientError> {
        self.own(UnixStream::connect(&self.socket).await)
    }

    /// Refuses a socket of another user, because tokens and cookies are sent to it; returns the
    /// listener's process id.
    fn own<S: AsFd>(&self, connected: io::Result<S>) -> Result<(S, i32), ClientError> {
        let own = connected.and_then(|stream| {
            let listener = rustix::net::sockopt::socket_peercred(&stream)?;
            if listener.uid != rustix::process::geteuid() {
                let why = format!("user {} listens there", listener.uid.as_raw());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            Ok((stream, listener.pid.as_raw_nonzero().get()))
        });
        own.map_err(|source| ClientError::NotRunning { socket: self.socket.clone(), source })
    }

    async fn open(
        &self,
        stream: UnixStream,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<(StatusCode, Incoming), ClientError> {
        let broken = |error: hyper::Error| ClientError::Connection(error.to_string());
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // An error of the connection is also returned by the request.
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
        if self.downloads_only {
            request = request.header(SCOPE_HEADER, "downloads");
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request
            .body(body.map_or_else(Body::empty, Body::from))
            .map_err(|error| ClientError::Answer(error.to_string()))?;
        let answer = sender.send_request(request).await.map_err(broken)?;
        Ok((answer.status(), answer.into_body()))
    }
}

/// Waits for an answer of the agent, process `pid`.
async fn within<T>(
    timeout: Duration,
    pid: i32,
    answer: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    let answered = tokio::time::timeout(timeout, answer).await;
    answered.unwrap_or(Err(ClientError::Silent { pid, waited: timeout }))
}

fn answer<T: DeserializeOwned>(body: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(body).map_err(|error| ClientError::Answer(error.to_string()))
}

/// The agent's events.
#[derive(Debug)]
pub struct EventStream {
    body: Incoming,
    /// The agent's process id.
    pid: i32,
    /// The timeout for the next event.
    timeout: Duration,
    /// Received bytes of the next messages.
    text: Vec<u8>,
}

impl EventStream {
    /// Waits for the next event; returns its name and data.
    ///
    /// # Errors
    /// [`ClientError::Stopped`] when the agent stops, [`ClientError::Connection`] when it is
    /// killed, and [`ClientError::Silent`] when it is frozen.
    pub async fn next(&mut self) -> Result<(String, String), ClientError> {
        loop {
            while let Some(end) = self.text.windows(2).position(|two| two == b"\n\n") {
                let message: Vec<u8> = self.text.drain(..end + 2).collect();
                let message = String::from_utf8_lossy(&message);
                let field = |name: &str| {
                    message.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_start)
                };
                if let (Some(name), Some(data)) = (field("event:"), field("data:")) {
                    return Ok((name.to_owned(), data.to_owned()));
                }
            }
            let frame = async { self.body.frame().await.ok_or(ClientError::Stopped) };
            let frame = within(self.timeout, self.pid, frame).await?;
            let frame = frame.map_err(|error| ClientError::Connection(error.to_string()))?;
            self.text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[tokio::test]
    async fn frozen_agent_is_not_waited_for_and_named_by_its_process() {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
        let client = Client::new(dir.path().join("socket"));
        let hasty = Client { timeout: Duration::from_millis(10), ..client.clone() };
        let process = format!("process {}", std::process::id());
        let silent = |error: ClientError| assert!(error.to_string().contains(&process), "{error}");
        silent(hasty.get::<serde_json::Value>("/").await.unwrap_err());
        silent(hasty.events().await.unwrap_err());
        // It may freeze after its first event.
        let agent = std::thread::spawn(move || {
            let mut streams = listener.incoming().flatten().skip(2);
            let mut stream = streams.next().unwrap();
            // An answer before the request ends the connection.
            stream.read_exact(&mut [0; 4]).unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nevent: stats\ndata: {}\n\n").unwrap();
            stream
        });
        let mut events = client.events().await.unwrap();
        assert_eq!(events.next().await.unwrap().0, "stats");
        events.timeout = hasty.timeout;
        silent(events.next().await.unwrap_err());
        drop(agent.join());
    }
}
