//! A scripted HTTP/1.1 server on loopback, one blocking thread per connection.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::faults::answer::{Answer, BodyBreak, HttpRequest, ServedFile};
use crate::faults::content::PAGE;
use crate::faults::fault::{Fault, Framing};
use crate::faults::peer::{Peer, read_head};
use crate::faults::schedule::{Build, BuildChoice, Labels, Redirect, Step};

/// Timeout of idle connections.
const IDLE: Duration = Duration::from_secs(30);

/// The server of one schedule; dropping it closes its listeners.
pub(crate) struct Server {
    shared: Arc<ServerState>,
    listener: Listener,
}

struct ServerState {
    builds: Vec<Build>,
    labels: Labels,
    tls: Option<Arc<ServerConfig>>,
    script: Mutex<Script>,
    served: AtomicU64,
    /// Counts all activity; a client without activity hangs.
    activity: AtomicU64,
    began: Instant,
}

/// The current step and its progress.
struct Script {
    step: Step,
    /// Requests for the file in this step.
    requests: u32,
    connections: usize,
    /// Whether the client has identified the file; a page can no longer pass for it.
    known: bool,
    target: Option<RedirectTarget>,
    targets: u32,
    asked: Vec<(u64, u64)>,
    log: String,
}

/// The target of a redirect.
struct RedirectTarget {
    listener: Listener,
    left: u32,
    lasts: bool,
    expired: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start(builds: Vec<Build>, labels: Labels, tls: Option<Arc<ServerConfig>>) -> Self {
        let script = Script {
            step: Step::sound(0),
            requests: 0,
            connections: 0,
            known: false,
            target: None,
            targets: 0,
            asked: Vec::new(),
            log: String::new(),
        };
        let shared = Arc::new(ServerState {
            builds,
            labels,
            tls,
            script: Mutex::new(script),
            served: AtomicU64::new(0),
            activity: AtomicU64::new(0),
            began: Instant::now(),
        });
        let listener = Listener::start(&shared, None);
        Self { shared, listener }
    }

    /// Begins a step; `known` is whether the client holds a part of the file.
    pub(crate) fn begin(&self, step: &Step, known: bool) {
        let mut script = self.shared.script();
        let log = std::mem::take(&mut script.log);
        *script = Script {
            step: step.clone(),
            requests: 0,
            connections: 0,
            known,
            target: None,
            targets: 0,
            asked: Vec::new(),
            log,
        };
        drop(script);
        self.shared.served.store(0, Ordering::SeqCst);
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.address
    }

    pub(crate) fn served(&self) -> u64 {
        self.shared.served.load(Ordering::SeqCst)
    }

    pub(crate) fn activity(&self) -> u64 {
        self.shared.activity.load(Ordering::SeqCst)
    }

    /// Returns the ranges requested in this step.
    pub(crate) fn asked(&self) -> Vec<(u64, u64)> {
        self.shared.script().asked.clone()
    }

    pub(crate) fn log(&self) -> String {
        self.shared.script().log.clone()
    }

    pub(crate) fn note(&self, line: &str) {
        self.shared.note(line);
    }
}

/// A listening port; closed when dropped.
struct Listener {
    address: SocketAddr,
    closed: Arc<AtomicBool>,
}

impl Listener {
    fn start(shared: &Arc<ServerState>, expired: Option<Arc<AtomicBool>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, closed) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let (shared, ended) = (Arc::clone(shared), Arc::clone(&closed));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(stream), shared, expired) = (stream, Arc::clone(&shared), expired.clone()) else {
                    continue;
                };
                thread::spawn(move || serve(&shared, stream, expired.as_deref()));
            }
        });
        Self { address, closed }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}

/// Serves the requests of one connection.
fn serve(shared: &Arc<ServerState>, socket: TcpStream, expired: Option<&AtomicBool>) {
    let connection = {
        let mut script = shared.script();
        script.connections += 1;
        script.connections - 1
    };
    let _ = socket.set_read_timeout(Some(IDLE));
    let _ = socket.set_write_timeout(Some(IDLE));
    let _ = socket.set_nodelay(true);
    let mut peer = match &shared.tls {
        None => Peer::Plain(socket),
        Some(config) => {
            Peer::Tls(Box::new(StreamOwned::new(ServerConnection::new(Arc::clone(config)).unwrap(), socket)))
        }
    };
    let count = |bytes| {
        shared.served.fetch_add(bytes, Ordering::SeqCst);
        shared.activity.fetch_add(1, Ordering::SeqCst);
    };
    let mut unread = Vec::new();
    while let Some(head) = read_head(&mut peer, &mut unread) {
        shared.activity.fetch_add(1, Ordering::SeqCst);
        let request = HttpRequest::parse(&head);
        let Some(answer) = shared.answer(&request, connection, expired) else { return peer.close() };
        match peer.answer(&request, &answer, &count) {
            Ok(true) => {}
            Ok(false) if matches!(answer.breaks, BodyBreak::Reset(_)) => return peer.reset(),
            Ok(false) | Err(_) => return peer.close(),
        }
        let refused =
            expired.is_some_and(|expired| expired.load(Ordering::SeqCst)) && shared.refuses_when_expired();
        if answer.closes || refused {
            return peer.close();
        }
    }
}

impl ServerState {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, line: &str) {
        let at = self.began.elapsed().as_secs_f64();
        let _ = writeln!(self.script().log, "{at:8.3} {line}");
    }

    fn refuses_when_expired(&self) -> bool {
        self.script().step.traits.redirect.is_some_and(|redirect| redirect.expired.is_none())
    }

    /// Returns the response to `request`, if there is one.
    fn answer(
        self: &Arc<Self>,
        request: &HttpRequest,
        connection: usize,
        expired: Option<&AtomicBool>,
    ) -> Option<Answer> {
        let redirect = self.script().step.traits.redirect;
        let (answer, what) = match (redirect, expired) {
            (Some(redirect), None) if request.path == "/f" => {
                let to = self.target_url(redirect);
                (Some(Answer::redirect(&to)), format!("302 to {to}"))
            }
            (Some(redirect), Some(expired)) if expired.load(Ordering::SeqCst) => {
                let code = redirect.expired.unwrap_or(403);
                (Some(Answer::status(code, None)), format!("{code}, expired"))
            }
            _ if request.path == "/login" => {
                (Some(Answer::page(Framing::Length, PAGE.len())), "page".to_owned())
            }
            _ => {
                if let Some(redirect) = redirect {
                    self.use_up(redirect);
                }
                self.of_file(request, connection)
            }
        };
        let HttpRequest { method, path, range, if_range } = request;
        self.note(&format!("#{connection} {method} {path} {range:?} if {if_range:?} -> {what}"));
        answer
    }

    /// Returns the URL of the current target, or of a fresh one.
    fn target_url(self: &Arc<Self>, redirect: Redirect) -> String {
        let mut script = self.script();
        if script.target.as_ref().is_none_or(|target| target.expired.load(Ordering::SeqCst)) {
            let expired = Arc::new(AtomicBool::new(false));
            script.targets += 1;
            let lasts = script.targets > redirect.expiries;
            drop(script);
            let listener = Listener::start(self, Some(Arc::clone(&expired)));
            script = self.script();
            script.target = Some(RedirectTarget { listener, left: redirect.serves, lasts, expired });
        }
        let port = script.target.as_ref().map_or(0, |target| target.listener.address.port());
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://localhost:{port}/target/{}/f", script.targets)
    }

    /// Counts a request of the current target.
    fn use_up(&self, redirect: Redirect) {
        let mut script = self.script();
        let Some(target) = &mut script.target else { return };
        target.left = target.left.saturating_sub(1);
        if target.left == 0 && !target.lasts {
            target.expired.store(true, Ordering::SeqCst);
            if redirect.expired.is_none() {
                // Closes the port.
                script.target = None;
            }
        }
    }

    /// Returns the response to a request for the file, and its description.
    fn of_file(&self, request: &HttpRequest, connection: usize) -> (Option<Answer>, String) {
        let mut script = self.script();
        let number = script.requests;
        script.requests += 1;
        let fault = script.step.faults.iter().find(|(at, _)| *at == number).map(|(_, fault)| *fault);
        // As the first response a page would be the file.
        let fault = fault.filter(|fault| script.known || !matches!(fault, Fault::Page { .. }));
        let builds = self.builds.len();
        let picked = match (script.step.picks, fault) {
            (_, Some(Fault::Stray(build))) => build,
            (BuildChoice::Always(build), _) => build,
            (BuildChoice::EachConnection, _) => connection % builds,
            (BuildChoice::EachRequest, _) => number as usize % builds,
            (BuildChoice::Change { at, to }, _) => {
                if number < at {
                    0
                } else {
                    to
                }
            }
        };
        let state = ServedFile {
            number: picked,
            build: self.builds[picked],
            labels: self.labels,
            traits: script.step.traits,
        };
        let what = format!(
            "request {number}: build {picked}{}",
            fault.map_or_else(String::new, |f| format!(", {f:?}"))
        );
        match fault {
            Some(Fault::HangUp) => return (None, what),
            Some(Fault::Page { by_redirect: true, .. }) => return (Some(Answer::redirect("/login")), what),
            _ => {}
        }
        let answer = state.answer(request, fault);
        if let Some((_, start)) = answer.build {
            script.asked.push((start, start + answer.body.len() as u64));
            // A reset may discard even the head.
            script.known |= !matches!(answer.breaks, BodyBreak::Reset(_));
        }
        (Some(answer), what)
    }
}
