//! A scripted HTTP/1.1 server on loopback, one blocking thread per connection.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::faults::answer::{Answer, ServedFile};
use crate::faults::content::PAGE;
use crate::faults::fault::{Fault, Framing, Page};
use crate::faults::peer::Listener;
use crate::faults::peer::Progress;
use crate::faults::peer::{Peer, read_request};
use crate::faults::schedule::{Build, BuildChoice, Labels, Redirect, Step};
use crate::support::http::HttpRequest;

/// Timeout of idle connections; longer than any of the client.
const IDLE: Duration = Duration::from_secs(60);

pub(crate) struct Server {
    shared: Arc<ServerState>,
    listener: Listener,
}

struct ServerState {
    builds: Vec<Build>,
    labels: Labels,
    odd_heads: bool,
    tls: Option<Arc<ServerConfig>>,
    script: Mutex<Script>,
    progress: Progress,
}

struct Script {
    step: Step,
    requests: u32,
    connections: usize,
    known: bool, // Whether the client has identified the file; a page can no longer pass for it
    targets: Vec<RedirectTarget>, // The last is in use
    asked: Vec<(u64, u64)>,
}

struct RedirectTarget {
    listener: Listener,
    left: u32,
    lasts: bool,
    expired: Arc<AtomicBool>,
}

impl Script {
    fn new(step: Step, known: bool) -> Self {
        Self { step, requests: 0, connections: 0, known, targets: Vec::new(), asked: Vec::new() }
    }
}

impl Server {
    pub(crate) fn start(
        builds: Vec<Build>,
        labels: Labels,
        odd_heads: bool,
        tls: Option<Arc<ServerConfig>>,
    ) -> Self {
        let script = Mutex::new(Script::new(Step::sound(0), false));
        let shared =
            Arc::new(ServerState { builds, labels, odd_heads, tls, script, progress: Progress::new() });
        let listener = shared.listen(None);
        Self { shared, listener }
    }

    /// Begins a step; `known` is whether the client holds a part of the file.
    pub(crate) fn begin(&self, step: &Step, known: bool) {
        *self.shared.script.lock() = Script::new(step.clone(), known);
        self.shared.progress.begin();
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.address
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.shared.progress
    }

    pub(crate) fn asked(&self) -> Vec<(u64, u64)> {
        self.shared.script.lock().asked.clone()
    }
}

fn serve(shared: &Arc<ServerState>, socket: TcpStream, expired: Option<&AtomicBool>) {
    let connection = {
        let mut script = shared.script.lock();
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
    while let Some(request) = read_request(&mut peer) {
        shared.progress.count(0);
        let Some(answer) = shared.answer(&request, connection, expired) else { return peer.close() };
        match peer.answer(&request, &answer, &shared.progress) {
            Ok(true) => {}
            Ok(false) if matches!(answer.breaks, Some(Fault::Reset(_))) => return peer.reset(),
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
    /// Listens; with `expired` as the target of a redirect.
    fn listen(self: &Arc<Self>, expired: Option<Arc<AtomicBool>>) -> Listener {
        let shared = Arc::clone(self);
        Listener::start(move |stream, _| {
            let (shared, expired) = (Arc::clone(&shared), expired.clone());
            thread::spawn(move || serve(&shared, stream, expired.as_deref()));
        })
    }

    fn refuses_when_expired(&self) -> bool {
        self.script.lock().step.traits.redirect.is_some_and(|redirect| redirect.expired.is_none())
    }

    fn answer(
        self: &Arc<Self>,
        request: &HttpRequest,
        connection: usize,
        expired: Option<&AtomicBool>,
    ) -> Option<Answer> {
        let redirect = self.script.lock().step.traits.redirect;
        let (answer, what) = match (redirect, expired) {
            (Some(redirect), None) if request.target == "/f" => {
                let to = self.target_url(redirect);
                (Some(Answer::redirect(&to)), format!("302 to {to}"))
            }
            (Some(redirect), Some(expired)) if expired.load(Ordering::SeqCst) => {
                let code = redirect.expired.unwrap_or(403);
                (Some(Answer::status(code, None)), format!("{code}, expired"))
            }
            _ if request.target == "/login" => {
                (Some(Answer::page(Framing::Length, PAGE.len())), "page".to_owned())
            }
            _ => {
                if let Some(redirect) = redirect {
                    self.use_up(redirect);
                }
                self.of_file(request, connection)
            }
        };
        let asked = request
            .head
            .lines()
            .filter(|line| !line.contains(": ") || line.to_lowercase().contains("range: "));
        let asked: Vec<_> = asked.collect();
        self.progress.note(&format!("#{connection} {} -> {what}", asked.join(" ").trim_end()));
        answer
    }

    /// Returns the URL of the current target, or of a fresh one.
    fn target_url(self: &Arc<Self>, redirect: Redirect) -> String {
        let mut script = self.script.lock();
        if script.targets.last().is_none_or(|target| target.expired.load(Ordering::SeqCst)) {
            let expired = Arc::new(AtomicBool::new(false));
            let lasts = script.targets.len() >= redirect.expiries as usize;
            let listener = self.listen(Some(Arc::clone(&expired)));
            script.targets.push(RedirectTarget { listener, left: redirect.serves, lasts, expired });
        }
        let port = script.targets.last().map_or(0, |target| target.listener.address.port());
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://localhost:{port}/target/{}/f", script.targets.len())
    }

    fn use_up(&self, redirect: Redirect) {
        let mut script = self.script.lock();
        let Some(target) = script.targets.last_mut() else { return };
        target.left = target.left.saturating_sub(1);
        if target.left == 0 && !target.lasts {
            target.expired.store(true, Ordering::SeqCst);
            if redirect.expired.is_none() {
                target.listener.close();
            }
        }
    }

    /// Returns the response to a request for the file, and its description.
    fn of_file(&self, request: &HttpRequest, connection: usize) -> (Option<Answer>, String) {
        let mut script = self.script.lock();
        let number = script.requests;
        script.requests += 1;
        let fault = script.step.faults.iter().find(|(at, _)| *at == number).map(|(_, fault)| *fault);
        // As the first response a page would be the file.
        let fault = fault.filter(|fault| script.known || !matches!(fault, Fault::Page(_)));
        let builds = self.builds.len();
        let picked = match (script.step.picks, fault) {
            (_, Some(Fault::Stray(build))) => build,
            (BuildChoice::Always(build), _) => build,
            (BuildChoice::EachConnection, _) => connection % builds,
            (BuildChoice::EachRequest, _) => number as usize % builds,
            (BuildChoice::Change(at, _), _) if number < at => 0,
            (BuildChoice::Change(_, to), _) => to,
        };
        let (build, labels, traits) = (self.builds[picked], self.labels, script.step.traits);
        let state = ServedFile { number: picked, build, labels, traits };
        let what = format!(
            "request {number}: build {picked}{}",
            fault.map_or_else(String::new, |f| format!(", {f:?}"))
        );
        match fault {
            Some(Fault::HangUp) => return (None, what),
            Some(Fault::Page(Page { by_redirect: true, .. })) => {
                return (Some(Answer::redirect("/login")), what);
            }
            _ => {}
        }
        let mut answer = state.answer(request, fault);
        if self.odd_heads {
            let odd = "\r\nX : y\r\nno colon\r\n folded\r\nTransfer-Encoding:\r\n";
            answer.head = answer.head.replacen("HTTP/1.1", "HTTP/2", 1).replacen("\r\n", odd, 1);
        }
        if let Some((_, start)) = answer.build {
            script.asked.push((start, start + answer.body.len() as u64));
            // A reset may discard even the head.
            script.known |= !matches!(answer.breaks, Some(Fault::Reset(_)));
        }
        (Some(answer), what)
    }
}
