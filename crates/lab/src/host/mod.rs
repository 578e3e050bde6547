//! The two hosts of a lab: network namespaces, devices, settings and processes.

mod device;
mod hosts_file;
mod network_files;
mod process;
mod server_command;
mod settings;
mod worker;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use longhaul_core::failure::FailureKind;
use longhaul_sys::process::PidNamespace;
use longhaul_sys::tun::{Offload, Tun};

use crate::cpu_time::CpuTime;
use crate::error::LabError;
use crate::link::{Capture, DirectionEvidence, LinkDirection, Observers, PathStats};
use crate::spec::PathSpec;

use device::{DEVICE, Device};
pub use longhaul_sys::process::Finished;
use network_files::NetworkFiles;
pub(crate) use process::FinishedCommand;
pub use process::Process;
pub use server_command::{ServerCommand, ServerCommandFailure};
use worker::{NamespaceWorker, Namespaces};

/// The side of an emulated host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostSide {
    Client = 0,
    Server = 1,
}

impl HostSide {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }

    /// Addresses of the benchmarking blocks (RFC 2544, RFC 5180), one network per pair of hosts.
    fn ipv4_of(self, pair: u16) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, pair as u8, 1 + self as u8)
    }

    fn ipv6_of(self, pair: u16) -> Ipv6Addr {
        Ipv6Addr::new(0x2001, 2, 0, pair, 0, 0, 0, 1 + self as u16)
    }
}

/// Optional observations of a path, besides its counters; none by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservationOptions {
    /// A `pcap` file of packets that the client sends and receives.
    pub client_pcap: Option<PathBuf>,
    /// A `pcap` file of packets that the server sends and receives.
    pub server_pcap: Option<PathBuf>,
    /// Whether to record flows and queues.
    pub flows_and_queues: bool,
}

impl ObservationOptions {
    fn is_any(&self) -> bool {
        *self != Self::default()
    }

    fn captures(&self) -> Result<[Option<Capture>; 2], LabError> {
        if let (Some(client), Some(server)) = (&self.client_pcap, &self.server_pcap)
            && resolved(client) == resolved(server)
        {
            let why =
                format!("{} is the client's capture, too: give each host its own file", server.display());
            return Err(LabError::Spec { what: "pcap-server", why });
        }
        let create = |path: &Option<PathBuf>, option| {
            path.as_deref().map(|path| Capture::create(path, option)).transpose()
        };
        Ok([create(&self.client_pcap, "--pcap")?, create(&self.server_pcap, "--pcap-server")?])
    }
}

/// Returns a path without symbolic links and `..`, also if the file does not exist yet.
fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new(".")).canonicalize().unwrap_or_default();
        directory.join(path.file_name().unwrap_or_default())
    })
}

/// The running path and its hosts.
///
/// Fields are dropped in order: the processes of the hosts first, then the path.
#[derive(Debug)]
pub(crate) struct HostsInner {
    _processes: PidNamespace,
    worker: NamespaceWorker,
    /// Client to server and server to client; empty if a veth pair connects the hosts.
    directions: Vec<LinkDirection>,
    devices: [Device; 2],
    files: [NetworkFiles; 2],
    has_ipv6: bool,
    captures: [Option<Capture>; 2],
    /// The CPU time when the path started.
    started: CpuTime,
    pub(crate) spec: PathSpec,
}

impl HostsInner {
    pub(crate) fn start(spec: PathSpec, watch: &ObservationOptions) -> Result<Self, LabError> {
        spec.validate()?;
        let captures = watch.captures()?;
        let plain = spec.is_plain() && !watch.is_any();
        let pairs = spec.ends.pairs.0.len().max(1) as u16;
        let (worker, namespaces) = NamespaceWorker::start(pairs)?;
        let Namespaces { networks: [_, server_namespace], files, processes } = namespaces;
        let mut congestion = Vec::new();
        let mut tuns = Vec::new();
        let mut peer = Some(server_namespace);
        for side in [HostSide::Client, HostSide::Server] {
            let spec = spec.clone();
            let peer = if side == HostSide::Client { peer.take() } else { None };
            let (setting, tun) = worker.run(side, move || prepare(&spec, side, peer, plain))??;
            congestion.push((side, setting));
            tuns.extend(tun.map(Arc::new));
        }
        settings::set_congestion(&spec.ends.congestion, &mut congestion)?;

        let mtu = spec.ends.mtu;
        let configure =
            |side| worker.run(side, move || Device::configure(side, pairs, mtu.get() as u32, plain))?;
        let (client, client_ipv6) = configure(HostSide::Client)?;
        let (server, server_ipv6) = configure(HostSide::Server)?;

        for device in [&client, &server] {
            device.wait_until_running()?;
        }
        let mut directions = Vec::new();
        if let [client, server] = tuns.as_slice() {
            for (name, stream, from, to) in [("client", 0, client, server), ("server", 1, server, client)] {
                let observers = Observers {
                    capture: captures[stream as usize].clone(),
                    evidence: watch.flows_and_queues.then(Arc::default),
                };
                directions.push(LinkDirection::start(
                    (name, stream),
                    &spec.direction(stream),
                    (Arc::clone(from), Arc::clone(to)),
                    observers,
                    captures[1 - stream as usize].clone(),
                )?);
            }
        }
        Ok(Self {
            _processes: processes,
            worker,
            directions,
            devices: [client, server],
            files,
            has_ipv6: client_ipv6 && server_ipv6,
            captures,
            started: CpuTime::now(),
            spec,
        })
    }

    /// Returns whether a host has sent a packet on the path; always true for a veth pair.
    pub(crate) fn has_carried(&self) -> bool {
        self.directions.is_empty() || self.directions.iter().any(|direction| direction.stats().packets > 0)
    }

    /// Returns the observations of both directions, and flushes the captures.
    pub(crate) fn evidence(&self) -> io::Result<Vec<DirectionEvidence>> {
        self.captures.iter().flatten().try_for_each(Capture::flush)?;
        Ok(self.directions.iter().filter_map(LinkDirection::evidence).collect())
    }

    pub(crate) fn stats(&self) -> Result<PathStats, LabError> {
        let cpu = CpuTime::now().since(self.started);
        let mut stats = PathStats { cpu, ..PathStats::default() };
        for host in &self.files {
            stats.memory_pressures += host.memory_pressures()?;
        }
        let both = [&mut stats.client_to_server, &mut stats.server_to_client];
        for (index, (direction, device)) in both.into_iter().zip(&self.devices).enumerate() {
            let counters = device.counters()?;
            match self.directions.get(index) {
                Some(running) => {
                    *direction = running.stats();
                    direction.dropped_overflow += counters.send_drops;
                }
                None => {
                    direction.packets = counters.sent_packets;
                    direction.bytes = longhaul_core::units::Bytes::new(counters.sent_bytes);
                    direction.dropped_overflow = counters.send_drops;
                }
            }
        }
        Ok(stats)
    }
}

/// Applies a host's settings and creates its device, a TUN or on a `plain` path a veth pair with
/// one end in the namespace `peer`; returns the open setting of its congestion control, and the
/// TUN.
fn prepare(
    spec: &PathSpec,
    side: HostSide,
    peer: Option<OwnedFd>,
    plain: bool,
) -> Result<(File, Option<Tun>), LabError> {
    let congestion = settings::apply(spec, side)?;
    if !plain {
        let tun = Tun::create(DEVICE, offload(spec)).map_err(|cause| {
            let message = format!(
                "cannot make a TUN device from /dev/net/tun: {cause}. TUN is not permitted here: load the module \
                 (modprobe tun), run as root or let this user open the device (chmod 0666 /dev/net/tun), or \
                 start the container with --device /dev/net/tun --cap-add NET_ADMIN"
            );
            LabError::failed(FailureKind::Denied, message)
        })?;
        return Ok((congestion, Some(tun)));
    }
    peer.map_or(Ok(()), |peer| Device::add_veth(peer.as_fd()))?;
    Ok((congestion, None))
}

/// Slow paths are emulated per packet; fast paths need super-packets (GSO).
fn offload(spec: &PathSpec) -> Offload {
    const PACKET_BY_PACKET: u64 = 1_000_000_000;
    let rates = [spec.direction(0).rate, spec.direction(1).rate];
    match rates.into_iter().collect::<Option<Vec<_>>>().and_then(|rates| rates.into_iter().max()) {
        Some(rate) if rate.as_bits_per_sec() <= PACKET_BY_PACKET => Offload::Checksum,
        _ => Offload::Segmentation,
    }
}

/// One host of a lab. Keeps the lab alive.
#[derive(Debug, Clone)]
pub struct Host {
    pub(crate) lab: Arc<HostsInner>,
    pub(crate) side: HostSide,
}

impl Host {
    /// Returns the host's IPv4 address.
    pub fn ipv4(&self) -> Ipv4Addr {
        self.side.ipv4_of(0)
    }

    /// Returns the host's IPv6 address; `None` on a machine without IPv6.
    pub fn ipv6(&self) -> Option<Ipv6Addr> {
        self.lab.has_ipv6.then(|| self.side.ipv6_of(0))
    }

    /// Runs `job` on a thread inside the host and returns its result.
    ///
    /// A socket opened by the job belongs to the host, on any thread. One thread serves both hosts:
    /// a job should be short, and cannot start threads.
    ///
    /// # Errors
    /// Fails if this or an earlier job panicked.
    pub fn run<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> Result<R, LabError> {
        self.lab.worker.run(self.side, job)
    }

    /// Returns whether a TCP socket of the host listens on `port`, at any address.
    ///
    /// # Errors
    /// Fails if the kernel's socket lists cannot be read.
    pub fn listens_on(&self, port: u16) -> Result<bool, LabError> {
        self.lab.files[self.side as usize].listens_on(port)
    }

    /// Creates a command with both hosts' addresses in its environment: LAB_CLIENT, LAB_SERVER,
    /// LAB_CLIENT6, LAB_SERVER6.
    ///
    /// LAB_NEAR and LAB_FAR are the same addresses, for scenarios of earlier versions.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, side) in [
            ("LAB_CLIENT", HostSide::Client),
            ("LAB_NEAR", HostSide::Client),
            ("LAB_SERVER", HostSide::Server),
            ("LAB_FAR", HostSide::Server),
        ] {
            command.env(name, side.ipv4_of(0).to_string());
            if self.lab.has_ipv6 {
                command.env(format!("{name}6"), side.ipv6_of(0).to_string());
            }
        }
        command
    }

    /// Creates a shell command without input, in its own process group: out of reach of the
    /// terminal's Ctrl-C.
    pub(crate) fn shell(&self, command: &str) -> Command {
        let mut shell = self.command("sh");
        shell.args(["-c", command]).stdin(Stdio::null()).process_group(0);
        shell
    }

    /// Starts a command on the host; dropping the lab kills it and its descendants.
    ///
    /// # Errors
    /// Fails if the program cannot be executed.
    pub fn spawn(&self, mut command: Command) -> Result<Process, LabError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = self.run(move || command.spawn())?;
        let host = self.side.name();
        let child = child.map_err(|cause| LabError::Spawn { program, host, cause })?;
        Ok(Process::new(child, Some(Arc::clone(&self.lab))))
    }
}
