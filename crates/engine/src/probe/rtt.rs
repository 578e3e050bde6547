//! Measures the RTT by TCP handshakes and ICMP echoes.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::probe::rtt::{RttMethod, RttSummary};
use longhaul_core::units::{Bytes, Rtt};
use longhaul_sys::tcp_info;
use socket2::{Domain, Protocol, Socket, Type};

use super::ProbeError;
use super::findings::Findings;

/// The number of ICMP echoes of a probe.
const COUNT: u32 = 5;
/// The number of handshakes with a server that starts a test for each connection.
pub(super) const ONE_HANDSHAKE: u32 = 1;
/// Handshakes with any other server.
pub(super) const HANDSHAKES: u32 = 10;
/// The pause between two handshakes or echoes, so that each finds the path idle.
const PAUSE: Duration = Duration::from_millis(20);
/// The timeout for an answer, three times the longest RTT of the internet.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// An echo's size at the IP layer: 20 bytes of IPv4, 8 of ICMP, 16 of payload, as for the budget.
const ECHO_SIZE: Bytes = Bytes::new(44);

/// The round-trip times by one method, and the last error.
type RttSamples = (Vec<Duration>, Option<io::Error>);

/// Measures by both methods; by ICMP only if the host permits it.
///
/// # Errors
/// [`ProbeError::Failed`] if neither method is answered.
pub(super) fn measure(
    findings: &mut Findings<'_>,
    address: SocketAddr,
    handshake_count: u32,
) -> Result<(), ProbeError> {
    let ((samples, refused), echoes) = std::thread::scope(|scope| {
        let echoes = scope.spawn(|| PingSocket::open(address.ip()).map(|socket| socket.echoes()));
        let handshakes = handshakes(address, handshake_count);
        let panicked = || Err(io::Error::other("its thread has panicked"));
        (handshakes, echoes.join().unwrap_or_else(|_| panicked()))
    });
    findings.report.rtt.extend(RttSummary::of(RttMethod::TcpHandshake, &samples, handshake_count));
    let icmp = match echoes {
        Ok((samples, error)) => {
            findings.budget.used += ECHO_SIZE * u64::from(COUNT);
            let summary = RttSummary::of(RttMethod::Icmp, &samples, COUNT);
            findings.report.rtt.extend(summary);
            let silent = error.map_or_else(|| "no answer".to_owned(), |error| error.to_string());
            summary.map_or(Err(silent), |_| Ok(()))
        }
        Err(error) => Err(match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "not permitted (sysctl net.ipv4.ping_group_range='0 2147483647' permits it)".to_owned()
            }
            _ => error.to_string(),
        }),
    };
    if let Err(why) = &icmp {
        findings.miss(format!("ICMP echo: {why}; it would have shown the RTT without the server's TCP"));
    }
    let Some(error) = refused else { return Ok(()) };
    match icmp {
        _ if !samples.is_empty() => findings.miss(format!("some TCP handshakes: {error}")),
        // The echoes' RTT stays in the findings, beside this failure.
        Ok(()) => findings.miss(format!(
            "TCP: cannot connect to {address}: {error}; check that the server runs, and the port"
        )),
        Err(why) => {
            let message = format!(
                "{address} does not answer: {error}; ICMP: {why}; check the host's name, its port, and firewalls on the way"
            );
            return Err(Failure::new(FailureKind::Unavailable, message).into());
        }
    }
    Ok(())
}

/// Returns the least RTT of three handshakes with `address`.
///
/// # Errors
/// The last error if none is answered.
pub fn handshake_rtt(address: SocketAddr) -> io::Result<Rtt> {
    let (samples, error) = handshakes(address, 3);
    let unanswered = || error.unwrap_or_else(|| io::ErrorKind::TimedOut.into());
    samples.into_iter().min().map(Rtt::new).ok_or_else(unanswered)
}

/// Connects several times in short succession: all handshakes together take little more than one
/// round trip.
fn handshakes(address: SocketAddr, count: u32) -> RttSamples {
    let connect = move |number: u32| {
        std::thread::sleep(PAUSE * number);
        let started = Instant::now();
        let stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
        Ok(handshake_time(&stream, started.elapsed()))
    };
    let (mut samples, mut failure) = (Vec::new(), None);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || connect(number))).collect();
        for thread in threads {
            match thread.join() {
                Ok(Ok(time)) => samples.push(time),
                Ok(Err(error)) => failure = Some(error),
                // The panic hook has reported it.
                Err(_) => {}
            }
        }
    });
    (samples, failure)
}

/// Returns the handshake's RTT from the kernel, which excludes the wake-up of the thread; `elapsed`
/// if the kernel reports none.
fn handshake_time(stream: &TcpStream, elapsed: Duration) -> Duration {
    let by_kernel = tcp_info::read(stream).ok().and_then(|info| info.rtt()).map(Rtt::get);
    by_kernel.filter(|time| *time < elapsed).unwrap_or(elapsed)
}

/// An unprivileged ICMP socket (Linux 3.0): the kernel sets identifier and checksum, and delivers
/// only the answers to this socket.
struct PingSocket {
    socket: Socket,
    request: u8,
    reply: u8,
}

impl PingSocket {
    /// ICMP and ICMPv6 types (RFC 792, RFC 4443): echo request, echo reply.
    const V4: (u8, u8) = (8, 0);
    const V6: (u8, u8) = (128, 129);

    fn open(to: IpAddr) -> io::Result<Self> {
        let (domain, protocol, (request, reply)) = match to {
            IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4, Self::V4),
            IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6, Self::V6),
        };
        let socket = Socket::new(domain, Type::DGRAM, Some(protocol))?;
        socket.connect(&SocketAddr::new(to, 0).into())?;
        Ok(Self { socket, request, reply })
    }

    /// Sends all echoes, and collects answers meanwhile.
    fn echoes(&self) -> RttSamples {
        let (mut sent, mut samples) = (Vec::new(), Vec::new());
        for number in 0..COUNT as u16 {
            let mut packet = [0; 24];
            packet[0] = self.request;
            packet[6..8].copy_from_slice(&number.to_be_bytes());
            sent.push(Instant::now());
            if let Err(error) = self.socket.send(&packet) {
                return (samples, Some(error));
            }
            if let Err(error) = self.collect(&sent, &mut samples, Instant::now() + PAUSE) {
                return (samples, Some(error));
            }
        }
        let ended = self.collect(&sent, &mut samples, Instant::now() + ANSWER_TIMEOUT);
        (samples, ended.err())
    }

    /// Collects answers until `until`, or until every echo is answered.
    fn collect(&self, sent: &[Instant], samples: &mut Vec<Duration>, until: Instant) -> io::Result<()> {
        use std::io::Read;
        while samples.len() < COUNT as usize {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.socket.set_read_timeout(Some(left))?;
            let mut answer = [0; 64];
            let length = match (&self.socket).read(&mut answer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            };
            let number = u16::from_be_bytes([answer[6], answer[7]]);
            let then = sent.get(usize::from(number)).filter(|_| length >= 8 && answer[0] == self.reply);
            samples.extend(then.map(Instant::elapsed));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn handshake_times_are_measured_and_refusals_are_errors() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (samples, error) = handshakes(address, COUNT);
        assert_eq!((samples.len(), error.is_none()), (5, true));
        assert!(samples.iter().all(|time| !time.is_zero() && *time < ANSWER_TIMEOUT), "{samples:?}");
        drop(listener);
        let (samples, error) = handshakes(address, COUNT);
        assert!(samples.is_empty());
        assert_eq!(error.unwrap().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn loopback_answers_permitted_echoes() {
        match PingSocket::open(IpAddr::from([127, 0, 0, 1])) {
            Ok(socket) => {
                let (samples, error) = socket.echoes();
                assert_eq!(samples.len(), 5, "{error:?}");
            }
            Err(error) => println!("skipped: ICMP is not permitted: {error}"),
        }
    }
}
