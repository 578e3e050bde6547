//! Cross traffic: kernel TCP flows from the server host to the client host.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use longhaul_core::units::{Bytes, Rate};
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use crate::clock::Clock;
use crate::error::LabError;
use crate::host::Host;
use crate::model::Time;
use crate::spec::CrossFlows;

/// Interval at which sockets are filled and emptied; the kernel's buffers hold more than the path
/// carries in it.
const SOCKET_CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// Statistics of the cross flows since their start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CrossFlowStats {
    /// The configured number of flows.
    pub flows: u32,
    /// Flows that failed, while connecting or later.
    pub failed: u32,
    /// Payload bytes that all flows delivered.
    pub bytes: Bytes,
    /// Time since the start of the flows; their duration once they have ended.
    pub time: Duration,
}

impl CrossFlowStats {
    /// Returns the total goodput of the flows.
    pub fn goodput(&self) -> Rate {
        Rate::over(self.bytes, self.time)
    }
}

/// Cross flows, running or waiting for their start time; dropping this ends them.
#[derive(Debug)]
pub(crate) struct CrossTraffic {
    flows: CrossFlows,
    shared: Arc<SharedFlows>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct SharedFlows {
    clock: Clock,
    stop: AtomicBool,
    course: Mutex<FlowCourse>,
}

/// What the flows have done so far.
#[derive(Debug, Clone, Copy, Default)]
struct FlowCourse {
    begun: Option<Time>,
    ended: Option<Time>,
    bytes: Bytes,
    failed: u32,
}

impl SharedFlows {
    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits until `from` after the path's first packet; returns false if the flows were stopped
    /// meanwhile.
    fn wait_for_time(&self, from: Duration, host: &Host) -> bool {
        while !host.lab.has_carried() && !self.stops() {
            thread::park_timeout(SOCKET_CHECK_INTERVAL);
        }
        let begin = self.clock.now() + from;
        while self.clock.now() < begin && !self.stops() {
            thread::park_timeout(begin.since(self.clock.now()));
        }
        !self.stops()
    }
}

impl CrossTraffic {
    /// Opens the flows' sockets and starts a thread that runs them at their start time.
    pub(crate) fn start(flows: CrossFlows, client: &Host, server: &Host) -> Result<Self, LabError> {
        let failed = |cause: io::Error| LabError::host("make the cross flows")(cause);
        let ip = client.ipv4();
        let listener = client.run(move || TcpListener::bind((ip, 0)))?.map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let make = move || (0..flows.count).map(|_| unconnected()).collect::<io::Result<Vec<_>>>();
        let senders = server.run(make)?.map_err(failed)?;
        let (clock, stop) = (Clock::start(), AtomicBool::new(false));
        let shared = Arc::new(SharedFlows { clock, stop, course: Mutex::default() });
        let (host, of_thread) = (client.clone(), Arc::clone(&shared));
        let thread = thread::Builder::new()
            .name("lab-cross".to_owned())
            .spawn(move || {
                if of_thread.wait_for_time(flows.from, &host) {
                    let begun = clock.now();
                    of_thread.course.lock().begun = Some(begun);
                    let until = flows.to.map(|to| begun + (to - flows.from));
                    FlowSockets { listener, senders, receivers: Vec::new() }.run(&of_thread, address, until);
                    of_thread.course.lock().ended = Some(clock.now());
                }
            })
            .map_err(failed)?;
        Ok(Self { flows, shared, thread: Some(thread) })
    }

    pub(crate) fn stats(&self) -> CrossFlowStats {
        let FlowCourse { begun, ended, bytes, failed } = *self.shared.course.lock();
        let ended = ended.unwrap_or_else(|| self.shared.clock.now());
        let time = begun.map_or(Duration::ZERO, |begun| ended.since(begun));
        CrossFlowStats { flows: u32::from(self.flows.count), failed, bytes, time }
    }
}

impl Drop for CrossTraffic {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Opens a socket in the network namespace of the calling thread.
fn unconnected() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?)
}

/// Both endpoints of all flows.
struct FlowSockets {
    listener: TcpListener,
    senders: Vec<OwnedFd>,
    receivers: Vec<TcpStream>,
}

impl FlowSockets {
    /// Sends and receives as much as TCP allows, until the flows end.
    fn run(mut self, shared: &SharedFlows, address: SocketAddr, until: Option<Time>) {
        let flows = self.senders.len();
        let mut chunk = vec![0; 1 << 18];
        keep(&mut self.senders, |sender| match rustix::net::connect(sender, &address) {
            Err(Errno::INPROGRESS) => Ok(()),
            other => other,
        });
        while !shared.stops() && until.is_none_or(|until| shared.clock.now() < until) {
            while let Ok((receiver, _)) = self.listener.accept() {
                self.receivers.push(receiver);
            }
            keep(&mut self.senders, |sender| fill(sender, &chunk));
            let mut received = 0;
            // Closing a failed receiver resets its sender.
            keep(&mut self.receivers, |receiver| empty(receiver, &mut chunk, &mut received));
            let mut course = shared.course.lock();
            course.bytes += Bytes::new(received);
            course.failed = (flows - self.senders.len()) as u32;
            drop(course);
            thread::park_timeout(SOCKET_CHECK_INTERVAL);
        }
        for sender in &self.senders {
            // Discards unsent data at close: it would be sent after the flows' end.
            if let Err(error) = sockopt::set_socket_linger(sender, Some(Duration::ZERO)) {
                tracing::debug!("a cross flow ends gently: {error}");
            }
        }
    }
}

/// Runs `act` on each socket; closes the sockets for which it fails.
fn keep<S>(sockets: &mut Vec<S>, mut act: impl FnMut(&S) -> Result<(), Errno>) {
    sockets.retain(|socket| {
        let outcome = act(socket);
        if let Err(errno) = outcome {
            tracing::warn!("a cross flow has broken off: {errno}");
        }
        outcome.is_ok()
    });
}

/// Sends until the socket's buffer is full.
fn fill(sender: &OwnedFd, chunk: &[u8]) -> Result<(), Errno> {
    loop {
        match rustix::net::send(sender, chunk, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) => {}
            Err(Errno::AGAIN) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
}

/// Discards received data without a copy (MSG_TRUNC) and counts it.
fn empty(receiver: &TcpStream, chunk: &mut [u8], bytes: &mut u64) -> Result<(), Errno> {
    loop {
        match rustix::net::recv(receiver, &mut *chunk, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok((_, 0)) => return Err(Errno::CONNRESET),
            Ok((_, len)) => *bytes += len as u64,
            Err(Errno::AGAIN) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
}
