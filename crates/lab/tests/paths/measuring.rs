//! Measurements that are repeated where this machine did not keep up with the path, and the load of
//! bulk TCP.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::units::{Bytes, Rate};
use longhaul_lab::{Lab, PathSpec};
use longhaul_sys::send_options::set_max_pacing_rate;
use longhaul_sys::sockopt::force_recv_buffer;

use crate::common::lab;

const MAX_ATTEMPTS: u32 = 5;
/// What disturbs a host lasts for seconds.
const PAUSE: Duration = Duration::from_secs(15);

/// CPU time of this machine since its start, in clock ticks.
struct CpuTime {
    all: f64,
    idle: f64,
    stolen: f64,
}

impl CpuTime {
    /// Reads the first line of /proc/stat (proc_stat(5)): the eighth number is the time that other
    /// guests of the hypervisor took.
    fn now() -> Self {
        let text = std::fs::read_to_string("/proc/stat").unwrap();
        let numbers = text.lines().next().unwrap().split_whitespace().skip(1);
        let ticks: Vec<f64> = numbers.map(|number| number.parse().unwrap()).collect();
        Self { all: ticks[..8].iter().sum(), idle: ticks[3] + ticks[4], stolen: ticks[7] }
    }

    /// Returns what disturbed a measurement since `before`. Senders that wait for a CPU send
    /// bursts, which the path's counters do not show.
    fn disturbance_since(&self, before: &Self) -> Option<String> {
        // Counters may run backwards where a guest is moved to another host.
        let all = (self.all - before.all).max(1.0);
        let (stolen, idle) = ((self.stolen - before.stolen) / all, (self.idle - before.idle) / all);
        if stolen > 0.01 {
            return Some(format!("the hypervisor took {:.1} % of the CPU time", stolen * 100.0));
        }
        (idle < 0.1).then(|| format!("CPUs were busy for {:.0} % of the time", 100.0 - idle * 100.0))
    }
}

/// Repeats `measure` on fresh labs until the machine kept up with the path; its verdict counts only
/// then. Each other run is reported under `name`, also where the test harness captures the output.
pub(crate) fn measure_while_keeping_up(
    name: &str,
    spec: &PathSpec,
    measure: impl Fn(&Lab) -> Result<(), String>,
) {
    for attempt in 1..=MAX_ATTEMPTS {
        let Some(lab) = lab(spec.clone()) else { return };
        let before = CpuTime::now();
        let Err(failure) = measure(&lab) else { return };
        let stats = lab.stats().unwrap();
        let mut excuses = stats.infidelities(spec);
        excuses.extend(CpuTime::now().disturbance_since(&before));
        assert!(!excuses.is_empty(), "{name}: {failure}, and the machine kept up: {stats}");
        let then = if attempt < MAX_ATTEMPTS { "repeated" } else { "not judged" };
        let why = excuses.join("; ");
        let _ = writeln!(
            std::io::stderr(),
            "paths: this machine did not hold a run of {name}: {then} ({failure}; {why})"
        );
        if attempt < MAX_ATTEMPTS {
            thread::sleep(PAUSE);
        }
    }
}

/// Returns an error that names the quantity if it is out of bounds.
pub(crate) fn within(what: &str, measured: f64, bounds: std::ops::RangeInclusive<f64>) -> Result<(), String> {
    if bounds.contains(&measured) { Ok(()) } else { Err(format!("{what}: {measured} is not in {bounds:?}")) }
}

/// Returns the round-trip time of a packet of 32 bytes that the server returns.
pub(crate) fn echo_time(client: &UdpSocket, server: &UdpSocket) -> Duration {
    let (mut packet, sent) = ([0; 64], Instant::now());
    client.send(b"ping").unwrap();
    let (len, from) = server.recv_from(&mut packet).unwrap();
    server.send_to(&packet[..len], from).unwrap();
    client.recv(&mut packet).unwrap();
    sent.elapsed()
}

/// Bulk connections from client to server.
pub(crate) struct Bulk {
    pub(crate) streams: usize,
    pub(crate) pace: Option<Rate>,
    /// Receive window per connection.
    pub(crate) window: Option<Bytes>,
}

impl Bulk {
    /// Sends while `watch` runs with the counter of received bytes.
    pub(crate) fn send_while<R>(&self, lab: &Lab, watch: impl FnOnce(&AtomicU64) -> R) -> R {
        let address = SocketAddr::from((lab.server().ipv4(), 4000));
        let listener = lab.server().run(move || TcpListener::bind(address).unwrap()).unwrap();
        if let Some(window) = self.window {
            // Inherited by accepted connections. The kernel doubles the value, and announces about
            // half of that.
            force_recv_buffer(&listener, window).unwrap();
        }
        let (received, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            let mut sockets = Vec::new();
            for _ in 0..self.streams {
                let mut sender = lab.client().run(move || TcpStream::connect(address).unwrap()).unwrap();
                if let Some(pace) = self.pace {
                    set_max_pacing_rate(&sender, pace).unwrap();
                }
                let (mut receiver, _) = listener.accept().unwrap();
                sockets.push(sender.try_clone().unwrap());
                let (received, stop) = (&received, &stop);
                scope.spawn(move || {
                    let chunk = vec![0; 1 << 20];
                    while !stop.load(Ordering::Relaxed) && sender.write_all(&chunk).is_ok() {}
                });
                scope.spawn(move || {
                    let mut chunk = vec![0; 1 << 20];
                    while let Ok(len @ 1..) = receiver.read(&mut chunk) {
                        received.fetch_add(len as u64, Ordering::Relaxed);
                    }
                });
            }
            let result = watch(&received);
            stop.store(true, Ordering::Relaxed);
            sockets.iter().for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
            result
        })
    }
}
