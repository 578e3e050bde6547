//! Round trips by TCP handshakes and ICMP echoes.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use longhaul_core::probe::rtt::{RttMethod, RttSummary};
use longhaul_core::units::Bytes;
use socket2::{Domain, Protocol, Socket, Type};

use super::error::ProbeError;
use super::findings::Findings;

/// Handshakes and echoes of a probe.
const COUNT: u32 = 5;
/// Pause between two of them: each shall find the path idle.
const PAUSE: Duration = Duration::from_millis(10);
/// How long an answer may take; the longest path of the internet takes a third of it.
const PATIENCE: Duration = Duration::from_secs(1);
/// After so many in a row without an answer the others are left out.
const SILENT: u32 = 2;
/// An echo's size at the IP layer: 20 bytes of IPv4, 8 of ICMP, 16 of payload, as for the budget.
const ECHO_SIZE: Bytes = Bytes::new(44);

/// What became of a kind of round trips: samples, requests sent, and the last error.
type Samples = (Vec<Duration>, u32, Option<io::Error>);

/// Measures both; ICMP where it is permitted.
///
/// # Errors
/// [`ProbeError::Silent`] where neither is answered, [`ProbeError::Port`] where the port refuses connections.
pub(super) fn measure(findings: &mut Findings<'_>, address: SocketAddr) -> Result<(), ProbeError> {
    let (samples, sent, refused) = repeat(|_| handshake(address));
    findings.rtt.extend(RttSummary::of(RttMethod::TcpHandshake, &samples, sent));
    let echoes = match PingSocket::open(address.ip()) {
        Ok(mut socket) => Ok(repeat(|number| socket.echo(number))),
        Err(error) => Err(error),
    };
    let icmp = match echoes {
        Ok((samples, sent, error)) => {
            findings.budget.spend(ECHO_SIZE * u64::from(sent));
            let summary = RttSummary::of(RttMethod::Icmp, &samples, sent);
            findings.rtt.extend(summary);
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
    match refused {
        None => Ok(()),
        Some(error) if !samples.is_empty() => {
            findings.miss(format!("some TCP handshakes: {error}"));
            Ok(())
        }
        Some(error) if icmp.is_ok() => {
            // What the network says of the path stands; the caller reports it with this failure.
            findings.miss(format!("TCP: {}", ProbeError::Port { address, reason: error.to_string() }));
            Ok(())
        }
        Some(error) => Err(ProbeError::Silent {
            address,
            handshake: error.to_string(),
            icmp: icmp.err().unwrap_or_default(),
        }),
    }
}

fn repeat(mut once: impl FnMut(u32) -> io::Result<Duration>) -> Samples {
    let (mut samples, mut failure) = (Vec::new(), None);
    for number in 0..COUNT {
        match once(number) {
            Ok(time) => samples.push(time),
            Err(error) => failure = Some(error),
        }
        if number + 1 >= SILENT && samples.is_empty() {
            return (samples, number + 1, failure);
        }
        std::thread::sleep(PAUSE);
    }
    (samples, COUNT, failure)
}

/// Connects, and returns how long that took.
fn handshake(address: SocketAddr) -> io::Result<Duration> {
    let started = Instant::now();
    TcpStream::connect_timeout(&address, PATIENCE).map(|_| started.elapsed())
}

/// An unprivileged ICMP socket (Linux 3.0): the kernel fills in identifier and checksum, and passes on its own answers only.
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

    fn echo(&mut self, number: u32) -> io::Result<Duration> {
        use std::io::Read;
        let [.., high, low] = number.to_be_bytes();
        let mut packet = [0; 24];
        packet[0] = self.request;
        packet[6..8].copy_from_slice(&[high, low]);
        let started = Instant::now();
        self.socket.send(&packet)?;
        loop {
            let left = PATIENCE.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
            }
            self.socket.set_read_timeout(Some(left))?;
            let mut answer = [0; 64];
            let length = match self.socket.read(&mut answer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            };
            if length >= 8 && answer[0] == self.reply && answer[6..8] == [high, low] {
                return Ok(started.elapsed());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn handshakes_with_a_listener_are_timed_and_refusals_end_early() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (samples, sent, error) = repeat(|_| handshake(address));
        assert_eq!((samples.len(), sent, error.is_none()), (5, 5, true));
        drop(listener);
        let (samples, sent, error) = repeat(|_| handshake(address));
        assert_eq!((samples.len(), sent), (0, 2));
        assert_eq!(error.unwrap().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn loopback_answers_echoes_where_they_are_permitted() {
        match PingSocket::open(IpAddr::from([127, 0, 0, 1])) {
            Ok(mut socket) => {
                let (samples, sent, error) = repeat(|number| socket.echo(number));
                assert_eq!((samples.len(), sent), (5, 5), "{error:?}");
            }
            Err(error) => println!("skipped: ICMP is not permitted: {error}"),
        }
    }
}
