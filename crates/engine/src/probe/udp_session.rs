//! Trains and echoes over a UDP port that a measurement endpoint opened for this client.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longhaul_core::probe::message::{LARGEST_MESSAGE, Nonce, UdpOffer, UdpPacket, UdpRequest};
use longhaul_core::probe::packet_train::{Arrival, PacketTrain, udp_headers};
use longhaul_core::probe::train_search::TrainPlan;
use longhaul_core::units::{Bytes, Rate, Rtt};
use longhaul_sys::datagram_batch::{DatagramBatch, enable_merging, enable_timestamps};
use longhaul_sys::sockopt::set_recv_buffer;
use rustix::net::sockopt::{
    Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, ip_mtu, ipv6_mtu, set_ip_mtu_discover, set_ipv6_mtu_discover,
};

/// The receive buffer to request: 20 ms at 10 Gbit/s, while the receiving thread waits for a CPU.
const BUFFER: Bytes = Bytes::mib(32);
/// A smaller buffer loses packets of trains; the kernel's default is 0.2 MB.
pub(super) const ENOUGH_BUFFER: Bytes = Bytes::mib(2);
/// The timeout of a train's first packet, and of an echo, beyond two round trips.
const REPLY_PATIENCE: Duration = Duration::from_millis(300);
/// The number of requests before a train counts as lost.
const MAX_REQUESTS: u32 = 2;
/// A train ends after this silence plus a quarter of a round trip.
const SILENCE: Duration = Duration::from_millis(60);
/// The longest wait for a further packet of a slow train.
const MAX_GAP: Duration = Duration::from_secs(1);
/// The time limit of one train: a whole measurement takes ten seconds.
const MAX_TRAIN_TIME: Duration = Duration::from_secs(10);
/// The payload of an echo.
const ECHO_MESSAGE: Bytes = Bytes::new(64);

/// The answered echoes.
#[derive(Debug, Default)]
pub(super) struct Echoes {
    pub(super) sent: u32,
    pub(super) round_trips: Vec<Duration>,
    /// One-way arrivals from the server at this host.
    pub(super) returns: Vec<Arrival>,
}

impl Echoes {
    pub(super) fn answered(&self) -> u32 {
        u32::try_from(self.round_trips.len()).unwrap_or(u32::MAX)
    }
}

/// The client's side of a session.
pub(super) struct UdpSession {
    socket: UdpSocket,
    nonce: Nonce,
    batch: DatagramBatch,
    next: u32,
    rtt: Rtt,
    /// The highest rate of datagrams in each direction.
    ceiling: Rate,
    /// When the last echo has had its time at the ceiling.
    free: Instant,
    /// The size of the IP and UDP headers.
    pub(super) headers: Bytes,
    /// The bytes received, IP headers included.
    pub(super) received: Bytes,
}

impl UdpSession {
    /// Opens a socket to the offered port.
    pub(super) fn open(server: IpAddr, offer: &UdpOffer, rtt: Rtt, ceiling: Rate) -> io::Result<Self> {
        let nonce = Nonce::from_hex(&offer.nonce)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its nonce is not one"))?;
        let any: SocketAddr =
            if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
        let socket = UdpSocket::bind(any)?;
        socket.connect((server, offer.port))?;
        set_recv_buffer(&socket, BUFFER)?;
        enable_timestamps(&socket)?;
        if let Err(error) = enable_merging(&socket) {
            tracing::debug!("datagrams of trains are received one by one: {error}");
        }
        if server.is_ipv4() {
            set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)?;
        } else {
            set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DO)?;
        }
        let batch = DatagramBatch::new(LARGEST_MESSAGE.as_usize());
        let headers = udp_headers(server);
        let free = Instant::now();
        Ok(Self { socket, nonce, batch, next: 1, rtt, ceiling, free, headers, received: Bytes::ZERO })
    }

    /// Returns the size of the socket's receive buffer.
    pub(super) fn buffer(&self) -> Bytes {
        rustix::net::sockopt::socket_recv_buffer_size(&self.socket)
            .map_or(Bytes::ZERO, |size| Bytes::new(size as u64))
    }

    /// Returns the path MTU of the kernel: the route's, or a smaller one reported by routers.
    pub(super) fn known_mtu(&self) -> Option<Bytes> {
        let v4 = self.socket.peer_addr().ok()?.is_ipv4();
        let mtu = if v4 { ip_mtu(&self.socket) } else { ipv6_mtu(&self.socket) };
        mtu.ok().map(|mtu| Bytes::new(u64::from(mtu)))
    }

    /// Sends an echo with `message` bytes and waits for the answer; `None` without an answer, or if
    /// the packet is too large to send.
    pub(super) fn echo(&mut self, message: Bytes) -> io::Result<Option<Duration>> {
        let (number, started) = match self.send_echo(message) {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => {
                return Ok(None);
            }
            sent => sent?,
        };
        let until = Instant::now() + self.rtt.get() * 2 + REPLY_PATIENCE;
        while Instant::now() < until {
            let packets = self.receive(until)?;
            let answer = packets.iter().find(|(packet, _)| packet.is_echo && packet.train == number);
            if let Some((_, at)) = answer {
                return Ok(Some(at.saturating_sub(started)));
            }
        }
        Ok(None)
    }

    /// Sends echoes at `interval` while `goes_on` returns true; returns the answered ones.
    pub(super) fn echoes(&mut self, interval: Duration, goes_on: &dyn Fn() -> bool) -> io::Result<Echoes> {
        let mut sent: Vec<(u32, Duration)> = Vec::new();
        let mut echoes = Echoes::default();
        let (mut next, mut end) = (Instant::now(), None);
        while end.is_none_or(|end: Instant| Instant::now() < end)
            && !(end.is_some() && echoes.sent == echoes.answered())
        {
            if end.is_none() && Instant::now() >= next {
                sent.push(self.send_echo(ECHO_MESSAGE)?);
                echoes.sent += 1;
                next += interval;
                if !goes_on() {
                    end = Some(Instant::now() + self.rtt.get() * 2 + SILENCE);
                }
            }
            for (packet, at) in self.receive(end.unwrap_or(next))? {
                let known = sent.binary_search_by_key(&packet.train, |(number, _)| *number);
                if let Some((_, then)) =
                    known.ok().and_then(|index| sent.get(index)).filter(|_| packet.is_echo)
                {
                    echoes.round_trips.push(at.saturating_sub(*then));
                    // One way only: the server's delay in reading the request does not count.
                    let number = echoes.answered();
                    echoes.returns.push(Arrival { number, sent: packet.sent, received: at });
                }
            }
        }
        Ok(echoes)
    }

    /// Requests a train and receives it; returns an empty train if no packet arrives.
    pub(super) fn train(&mut self, plan: TrainPlan) -> io::Result<PacketTrain> {
        let number = self.take_number();
        let packet = plan.message + self.headers;
        self.pace(Bytes::ZERO);
        let before = receive_errors();
        let mut train = PacketTrain { count: plan.count, packet, ..PacketTrain::default() };
        // Also a train that would be sent back to back is paced by the server, at the ceiling.
        let pace = plan.rate.map_or(self.ceiling, |rate| rate.min(self.ceiling));
        let within = TrainPlan { rate: Some(pace), ..plan };
        let request = UdpRequest::Train { number, plan: within }.encode(self.nonce, Bytes::ZERO);
        for _ in 0..MAX_REQUESTS {
            self.socket.send(&request)?;
            let mut until = Instant::now() + self.rtt.get() * 2 + REPLY_PATIENCE;
            // The path may be far slower than the ceiling.
            let planned = plan
                .rate
                .map_or(MAX_TRAIN_TIME, |_| pace.time_for(plan.bytes(self.headers)).saturating_mul(2));
            let latest = until + planned.min(MAX_TRAIN_TIME);
            while (train.arrivals.len() as u64) < u64::from(plan.count) && Instant::now() < until {
                let packets = self.receive(until)?;
                let ours = packets.iter().filter(|(packet, _)| !packet.is_echo && packet.train == number);
                let known = train.arrivals.len();
                train.arrivals.extend(ours.map(|(packet, at)| Arrival {
                    number: packet.packet,
                    sent: packet.sent,
                    received: *at,
                }));
                // Only packets of the train extend the deadline.
                if train.arrivals.len() > known {
                    let gap = pace.time_for(packet).saturating_mul(20);
                    until = Instant::now() + (SILENCE + self.rtt.get() / 4).saturating_add(gap.min(MAX_GAP));
                }
                until = until.min(latest);
            }
            if !train.arrivals.is_empty() {
                break;
            }
        }
        let dropped = receive_errors().saturating_sub(before);
        train.dropped_here = u32::try_from(dropped).unwrap_or(u32::MAX);
        Ok(train)
    }

    /// Sends an echo with `message` bytes once the ceiling permits it; returns its number, and when
    /// it was sent.
    fn send_echo(&mut self, message: Bytes) -> io::Result<(u32, Duration)> {
        let number = self.take_number();
        self.pace(message);
        let sent = now();
        self.socket.send(&UdpRequest::Echo { number }.encode(self.nonce, message))?;
        Ok((number, sent))
    }

    /// Waits until the ceiling permits an echo with `message` bytes after the one before.
    fn pace(&mut self, message: Bytes) {
        std::thread::sleep(self.free.saturating_duration_since(Instant::now()));
        self.free = Instant::now() + self.ceiling.time_for(message + self.headers).min(REPLY_PATIENCE);
    }

    fn take_number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// Receives at least one packet, or none if `until` passes first.
    fn receive(&mut self, until: Instant) -> io::Result<Vec<(UdpPacket, Duration)>> {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.socket.set_read_timeout(Some(left))?;
        match self.batch.receive(&self.socket) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        }
        let mut packets = Vec::new();
        for (datagram, at) in self.batch.datagrams() {
            self.received += Bytes::new(datagram.len() as u64) + self.headers;
            packets.extend(UdpPacket::parse(datagram).map(|packet| (packet, at.unwrap_or_else(now))));
        }
        Ok(packets)
    }
}

impl Drop for UdpSession {
    /// Closes the server's port, which other clients may wait for. Sent twice, because a datagram
    /// may be lost.
    fn drop(&mut self) {
        let request = UdpRequest::Close.encode(self.nonce, Bytes::ZERO);
        // A closed port answers with an error.
        let _ = self.socket.send(&request).and_then(|_| self.socket.send(&request));
    }
}

/// Returns the time since 1970, the clock of the kernel's packet timestamps.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns how many datagrams this host dropped for lack of buffer space (`/proc/net/snmp`).
fn receive_errors() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let column = lines.next().and_then(|names| names.split(' ').position(|name| name == "RcvbufErrors"));
    column
        .zip(lines.next())
        .and_then(|(column, values)| values.split(' ').nth(column)?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An endpoint that answers each train without the packets for which `lose` is true, until its
    /// client closes it; returns the rates of the trains.
    fn endpoint(lose: fn(u32) -> bool) -> (UdpOffer, std::thread::JoinHandle<Vec<Option<Rate>>>) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let nonce = Nonce([3; 16]);
        let offer = UdpOffer {
            port: socket.local_addr().unwrap().port(),
            nonce: nonce.to_hex(),
            bytes: 1 << 20,
            seconds: 5,
        };
        let thread = std::thread::spawn(move || {
            let (mut buffer, mut rates) = ([0; 2000], Vec::new());
            loop {
                let (length, from) = socket.recv_from(&mut buffer).expect("the client closes the port");
                let (is_echo, train, plan) = match UdpRequest::parse(&buffer[..length], nonce).unwrap() {
                    UdpRequest::Close => return rates,
                    UdpRequest::Echo { number } => {
                        (true, number, TrainPlan { count: 1, message: Bytes::new(length as u64), rate: None })
                    }
                    UdpRequest::Train { number, plan } => {
                        rates.push(plan.rate);
                        (false, number, plan)
                    }
                };
                for packet in (0..plan.count).filter(|packet| !lose(*packet)) {
                    let mut out = vec![0; plan.message.as_usize()];
                    UdpPacket { is_echo, train, packet, sent: Duration::ZERO }.write(&mut out);
                    socket.send_to(&out, from).unwrap();
                }
            }
        });
        (offer, thread)
    }

    const CEILING: Rate = Rate::bits_per_sec(2_000_000_000);

    fn session(offer: &UdpOffer) -> UdpSession {
        let rtt = Rtt::new(Duration::from_millis(1));
        UdpSession::open(IpAddr::from([127, 0, 0, 1]), offer, rtt, CEILING).unwrap()
    }

    fn plan() -> TrainPlan {
        TrainPlan { count: 20, message: Bytes::new(100), rate: Some(Rate::bits_per_sec(1_000_000_000)) }
    }

    #[test]
    fn trains_and_echoes_arrive_within_the_ceiling() {
        let (offer, thread) = endpoint(|packet| packet == 7);
        let mut session = session(&offer);
        assert!(session.echo(Bytes::new(500)).unwrap().is_some());
        let train = session.train(plan()).unwrap();
        assert_eq!((train.arrivals.len(), train.packet), (19, Bytes::new(128)));
        assert_eq!(session.received, Bytes::new(528 + 19 * 128));
        let left = std::cell::Cell::new(3);
        let goes_on = || left.replace(left.get() - 1) > 1;
        let echoes = session.echoes(Duration::from_millis(10), &goes_on).unwrap();
        assert_eq!((echoes.sent, echoes.answered()), (3, 3));
        for rate in [None, Some(CEILING.scaled(1.5)), plan().rate] {
            assert_eq!(session.train(TrainPlan { rate, ..plan() }).unwrap().arrivals.len(), 19);
        }
        drop(session);
        let rate = plan().rate;
        assert_eq!(thread.join().unwrap(), [rate, Some(CEILING), Some(CEILING), rate]);
    }
}
