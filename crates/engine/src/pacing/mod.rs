//! Paces sending sockets: reads TCP_INFO, calls [`Pacer`](longhaul_core::tune::pace::Pacer), and
//! sets SO_MAX_PACING_RATE.
//!
//! One thread observes the sending sockets through duplicates of their descriptors: each up to 330
//! times a second, in tests up to 5,000, in slow start up to 20,000.

mod paced_socket;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use longhaul_core::pace::Pace;
use longhaul_core::tune::pace::HeldRate;
use longhaul_core::units::{Bytes, Rate};
use longhaul_sys::host;
use longhaul_sys::send_options::{set_max_pacing_rate, unset_max_pacing_rate};
use parking_lot::{Condvar, Mutex};
use rustix::thread::set_current_timer_slack;
use socket2::{Domain, Socket, Type};

use paced_socket::{PacedSocket, STARTUP_CONTROL, set_final_control};

/// The pacing thread: starts with the first socket of [`Pace::Auto`], ends when this and the last
/// [`PacingHandle`] are dropped.
#[derive(Default)]
pub struct PacingThread {
    commands: Mutex<Option<Arc<CommandSender>>>,
    next: AtomicU64,
}

/// What is known of the path, and the observer of it.
#[derive(Default)]
pub struct PacingStart {
    /// The path's rate at its last use.
    pub known: Option<Rate>,
    /// The pace at which a large initial window is being sent.
    pub first_cap: Option<Rate>,
    /// Receives the measurements of the path.
    pub observer: Option<Box<dyn PathObserver>>,
}

/// Receives measurements of a path on the pacing thread: when the rate is found, then at most once
/// a second, and when sending pauses.
pub trait PathObserver: Send {
    /// Returns how many connections share the path now, including the paced one.
    fn connections(&self) -> u32;

    /// Receives a measurement.
    fn measured(&self, path: PathMeasurement);
}

/// A measured path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathMeasurement {
    /// The sum of the rates of all connections that share the path, and the minimum RTT.
    pub known: HeldRate,
    /// The size of a segment (MSS).
    pub segment: Bytes,
    /// The path MTU in bytes, if the kernel reports it.
    pub mtu: Option<u32>,
}

/// A handle of a socket on the pacing thread; dropping it stops the pacing of that socket.
pub struct PacingHandle {
    number: u64,
    commands: Arc<CommandSender>,
}

/// The commands to the pacing thread. A channel's receiver spins before it sleeps, at thousands of
/// deadlines a second half a core.
#[derive(Default)]
struct CommandQueue {
    commands: Mutex<VecDeque<PacingCommand>>,
    added: Condvar,
}

/// Sends the commands of all handles; the pacing thread ends when it is dropped.
struct CommandSender(Arc<CommandQueue>);

enum PacingCommand {
    Add(u64, Box<PacedSocket>),
    Pause(u64),
    Resume(u64),
    Remove(u64),
    Close,
}

/// The most observations a second of all sockets in slow start together: what 20 of them on a long
/// path ask for.
const MAX_STARTING: f64 = 100_000.0;
/// The most of all other sockets: what 32 of them ask for.
const MAX_PACED: f64 = 10_700.0;

/// How late the kernel may wake the thread, in nanoseconds: its usual 50 µs are longer than the
/// interval in slow start on a short path.
const TIMER_SLACK: NonZeroU64 = NonZeroU64::MIN;

/// The congestion controls of a paced socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CongestionPlan {
    /// The control to connect or listen with; `None` leaves the kernel's default.
    pub initial: Option<String>,
    /// The control to pass to [`PacingThread::pace`].
    pub paced: Option<String>,
}

impl CongestionPlan {
    /// Plans for a socket with the requested control `requested`, or with the host's default.
    pub fn plan(requested: Option<&str>, pace: Pace) -> Self {
        let wanted = requested.map(str::to_owned);
        let paced = wanted.clone().or_else(host::congestion_control);
        if pace == Pace::Auto && paced.as_ref().is_some_and(|name| Self::check(name).is_ok()) {
            return Self { initial: Some(String::from_utf8_lossy(STARTUP_CONTROL).into_owned()), paced };
        }
        Self { initial: wanted.clone(), paced: wanted }
    }

    /// Checks, on a temporary socket, that the kernel permits a congestion control.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn check(name: &str) -> io::Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        // A socket may set its present control again without permission: another one is set first.
        // If that is refused too, `name` counts as permitted where it is the default.
        let _ = socket.set_tcp_congestion(STARTUP_CONTROL);
        socket.set_tcp_congestion(name.as_bytes())
    }
}

impl PacingThread {
    /// Paces a connected `socket` by `pace`; sets `congestion`, if given, after slow start.
    ///
    /// With [`Pace::Auto`], pacing starts from `start`.
    ///
    /// # Errors
    /// The kernel's error on setting an option or starting a thread.
    pub fn pace(
        &self,
        socket: impl AsFd,
        pace: Pace,
        congestion: Option<&str>,
        start: PacingStart,
    ) -> io::Result<Option<PacingHandle>> {
        match pace {
            Pace::Off => unset_max_pacing_rate(&socket)?,
            Pace::Rate(rate) => set_max_pacing_rate(&socket, rate)?,
            Pace::Auto => {
                match start.first_cap {
                    Some(first) => set_max_pacing_rate(&socket, first)?,
                    None => unset_max_pacing_rate(&socket)?,
                }
                return self.add(socket.as_fd().try_clone_to_owned()?, congestion, start).map(Some);
            }
        }
        set_final_control(&socket, congestion.map(str::as_bytes));
        Ok(None)
    }

    fn add(&self, socket: OwnedFd, congestion: Option<&str>, start: PacingStart) -> io::Result<PacingHandle> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let socket = PacedSocket::new(socket, congestion, start);
        let commands = self.thread()?;
        commands.0.send(PacingCommand::Add(number, Box::new(socket)));
        Ok(PacingHandle { number, commands })
    }

    /// Returns the sender to the thread; starts the thread on the first call.
    fn thread(&self) -> io::Result<Arc<CommandSender>> {
        let mut running = self.commands.lock();
        if let Some(commands) = &*running {
            return Ok(Arc::clone(commands));
        }
        let queue = Arc::<CommandQueue>::default();
        let commands = Arc::new(CommandSender(Arc::clone(&queue)));
        std::thread::Builder::new().name("pacing".to_owned()).spawn(move || run(&queue))?;
        Ok(Arc::clone(running.insert(commands)))
    }
}

impl PacingHandle {
    /// Pauses the pacer while nothing is sent, because observations would not show the path.
    pub fn pause(&self) {
        self.commands.0.send(PacingCommand::Pause(self.number));
    }

    /// Resumes the pacer.
    pub fn resume(&self) {
        self.commands.0.send(PacingCommand::Resume(self.number));
    }
}

impl Drop for PacingHandle {
    fn drop(&mut self) {
        self.commands.0.send(PacingCommand::Remove(self.number));
    }
}

impl Drop for CommandSender {
    fn drop(&mut self) {
        self.0.send(PacingCommand::Close);
    }
}

impl CommandQueue {
    fn send(&self, command: PacingCommand) {
        self.commands.lock().push_back(command);
        self.added.notify_one();
    }

    /// Waits for a command; `None` once `deadline` has passed.
    fn receive(&self, deadline: Option<Instant>) -> Option<PacingCommand> {
        let mut commands = self.commands.lock();
        let is_empty = |commands: &mut VecDeque<_>| commands.is_empty();
        if let Some(deadline) = deadline {
            self.added.wait_while_until(&mut commands, is_empty, deadline);
        } else {
            self.added.wait_while(&mut commands, is_empty);
        }
        commands.pop_front()
    }
}

fn run(commands: &CommandQueue) {
    // Refused, observations are later, and measure less.
    let _ = set_current_timer_slack(Some(TIMER_SLACK));
    let start = Instant::now();
    let mut sockets: BTreeMap<u64, PacedSocket> = BTreeMap::new();
    loop {
        let due = sockets.values().filter(|socket| !socket.is_paused).map(|socket| socket.due).min();
        match commands.receive(due.map(|due| start + due)) {
            Some(PacingCommand::Add(number, socket)) => drop(sockets.insert(number, *socket)),
            Some(PacingCommand::Pause(number)) => with(&mut sockets, number, PacedSocket::pause),
            Some(PacingCommand::Resume(number)) => with(&mut sockets, number, PacedSocket::resume),
            Some(PacingCommand::Remove(number)) => drop(sockets.remove(&number)),
            Some(PacingCommand::Close) => return,
            None => {
                let slowdown = |is_starting, most: f64| {
                    let alike =
                        |socket: &&PacedSocket| !socket.is_paused && socket.is_starting() == is_starting;
                    let per_second =
                        sockets.values().filter(alike).map(|socket| 1.0 / socket.interval().as_secs_f64());
                    (per_second.sum::<f64>() / most).max(1.0)
                };
                let (starting, others) = (slowdown(true, MAX_STARTING), slowdown(false, MAX_PACED));
                let now = start.elapsed();
                for socket in sockets.values_mut().filter(|socket| !socket.is_paused && socket.due <= now) {
                    let slowdown = if socket.is_starting() { starting } else { others };
                    socket.update(start.elapsed(), slowdown);
                }
            }
        }
    }
}

fn with(sockets: &mut BTreeMap<u64, PacedSocket>, number: u64, act: impl FnOnce(&mut PacedSocket)) {
    if let Some(socket) = sockets.get_mut(&number) {
        act(socket);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    #[test]
    fn thread_ends_with_the_last_handle() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let thread = PacingThread::default();
        let pace = || thread.pace(&socket, Pace::Auto, None, PacingStart::default()).unwrap().unwrap();
        let handles = [pace(), pace()];
        let queue = Arc::downgrade(&handles[0].commands.0);
        drop((thread, handles));
        let deadline = Instant::now() + Duration::from_secs(20);
        while queue.strong_count() > 0 {
            assert!(Instant::now() < deadline, "the thread is still there");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
