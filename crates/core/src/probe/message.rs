//! The messages between a client and the measurement endpoint of `longhaul serve --measure`.
//!
//! ```text
//!  GET /.longhaul/measure                          -> MeasureOffer
//!  GET /.longhaul/measure/stream?bytes=N[&..]      -> N bytes over TCP
//!  PUT /.longhaul/measure/stream                   N bytes over TCP -> 204
//!  GET /.longhaul/measure/udp                      -> UdpOffer: a port and a nonce
//!  UDP: UdpRequest::Echo, UdpRequest::Train        -> UdpPacket, one or a train of them
//!  UDP: UdpRequest::Close                          the port is closed
//! ```
//!
//! The header [`PROBE_HEADER`] identifies a probe, as one client may run several. Integers of
//! datagrams are big-endian.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, Rate};

use super::train_search::TrainPlan;

/// The path of the endpoint on a server.
pub const MEASURE_PATH: &str = "/.longhaul/measure";
/// The path from which the endpoint sends bytes over TCP (GET), and to which it receives them
/// (PUT).
pub const STREAM_PATH: &str = "/.longhaul/measure/stream";
/// The path whose GET opens a UDP port.
pub const UDP_PATH: &str = "/.longhaul/measure/udp";
/// The request header with the number of a probe, in hexadecimal digits: probes behind one address
/// share a ceiling as clients do.
pub const PROBE_HEADER: &str = "Longhaul-Probe";
/// The version of all messages.
pub const VERSION: u32 = 1;

/// The capabilities and limits of a measurement endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasureOffer {
    /// The version of the messages.
    pub version: u32,
    /// The highest rate at which the endpoint sends.
    pub ceiling_bps: Rate,
    /// The rate allowed for this probe, all of its flows together, if a ceiling is configured. The
    /// least since its first flow, as other probes share the ceiling.
    #[serde(default)]
    pub allowed_bps: Option<Rate>,
    /// Whether the endpoint also receives streams.
    #[serde(default)]
    pub receives: bool,
    /// The largest number of bytes of one stream.
    pub stream_bytes: u64,
    /// The congestion controls that streams may use.
    pub congestion: Vec<String>,
    /// The largest send buffer of the server's kernel (`tcp_wmem[2]`), if reported.
    pub tcp_wmem_max: Option<u64>,
}

/// A UDP port that the endpoint has opened for this client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpOffer {
    /// The port at the server's address.
    pub port: u16,
    /// The nonce of each request: 32 hexadecimal digits.
    pub nonce: String,
    /// The largest number of bytes that the port sends.
    pub bytes: u64,
    /// The longest time for which the port is open, in seconds.
    pub seconds: u64,
}

/// A random number that proves that the sender of a datagram received the HTTP answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nonce(pub [u8; 16]);

impl Nonce {
    /// Returns the nonce as 32 hexadecimal digits.
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }

    /// Parses 32 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        // from_str_radix takes a sign, too.
        let mut bits = [0; 16];
        hex::decode_to_slice(text, &mut bits).ok().map(|()| Self(bits))
    }
}

const MAGIC: [u8; 4] = *b"LHM1";
const ECHO: u8 = 1;
const TRAIN: u8 = 2;
const CLOSE: u8 = 3;
/// Magic, kind, nonce, number.
const ECHO_REQUEST: usize = 4 + 1 + 16 + 4;
/// An echo request's fields, then count, message, rate.
const TRAIN_REQUEST: usize = ECHO_REQUEST + 4 + 2 + 8;
/// Magic, kind, train, packet, time.
const PACKET: usize = 4 + 1 + 4 + 4 + 8;

/// The smallest message: a packet without padding.
pub const SMALLEST_MESSAGE: Bytes = Bytes::new(PACKET as u64);
/// The largest message: the largest value of IPv4's length field less the headers.
pub const LARGEST_MESSAGE: Bytes = Bytes::new(65_507);

/// A datagram from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UdpRequest {
    /// Requests one packet as long as the request.
    Echo {
        /// The number that the answer repeats.
        number: u32,
    },
    /// Requests a train.
    Train {
        /// The number of the train, which increases, so that a repeated request is not served
        /// twice.
        number: u32,
        /// The train.
        plan: TrainPlan,
    },
    /// Requests that the port be closed and made available to another client.
    Close,
}

impl UdpRequest {
    /// Encodes the request; an echo request is padded to `length`, the length of its answer.
    pub fn encode(&self, nonce: Nonce, length: Bytes) -> Vec<u8> {
        let mut out = Vec::from(MAGIC);
        out.push(match self {
            Self::Echo { .. } => ECHO,
            Self::Train { .. } => TRAIN,
            Self::Close => CLOSE,
        });
        out.extend_from_slice(&nonce.0);
        match self {
            Self::Echo { number } => {
                out.extend_from_slice(&number.to_be_bytes());
                out.resize(length.as_usize().max(ECHO_REQUEST), 0);
            }
            Self::Train { number, plan } => {
                out.extend_from_slice(&number.to_be_bytes());
                out.extend_from_slice(&plan.count.to_be_bytes());
                let message = u16::try_from(plan.message.get()).unwrap_or(u16::MAX);
                out.extend_from_slice(&message.to_be_bytes());
                out.extend_from_slice(&plan.rate.map_or(0, Rate::as_bits_per_sec).to_be_bytes());
            }
            Self::Close => {}
        }
        out
    }

    /// Parses a request with the nonce `nonce`; `None` for any other datagram, and for messages of
    /// an impossible size.
    pub fn parse(bytes: &[u8], nonce: Nonce) -> Option<Self> {
        let (&kind, rest) = bytes.strip_prefix(&MAGIC)?.split_first()?;
        // The comparison need not take constant time: the nonce has 128 random bits and is valid
        // for a short session.
        let rest = rest.strip_prefix(&nonce.0)?;
        if kind == CLOSE && rest.is_empty() {
            return Some(Self::Close);
        }
        let (number, rest) = take_u32(rest)?;
        match kind {
            ECHO => Some(Self::Echo { number }),
            TRAIN if bytes.len() == TRAIN_REQUEST => {
                let (count, rest) = take_u32(rest)?;
                let (message, rest) = rest.split_first_chunk::<2>()?;
                let (rate, _) = rest.split_first_chunk::<8>()?;
                let message = Bytes::new(u64::from(u16::from_be_bytes(*message)));
                let rate = Some(u64::from_be_bytes(*rate)).filter(|rate| *rate > 0).map(Rate::bits_per_sec);
                (SMALLEST_MESSAGE..=LARGEST_MESSAGE)
                    .contains(&message)
                    .then_some(Self::Train { number, plan: TrainPlan { count, message, rate } })
            }
            _ => None,
        }
    }
}

/// A datagram from the endpoint; the rest of its length is padding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpPacket {
    /// Whether the packet answers an echo request.
    pub is_echo: bool,
    /// The number of the train or of the echo request.
    pub train: u32,
    /// The packet's number within the train, from 0.
    pub packet: u32,
    /// The time of sending, by the endpoint's clock.
    pub sent: Duration,
}

impl UdpPacket {
    /// Writes the packet to the front of `buffer`, which has the message's length; leaves a buffer
    /// that is too short unchanged.
    pub fn write(&self, buffer: &mut [u8]) {
        let Some(head) = buffer.first_chunk_mut::<PACKET>() else { return };
        head[..4].copy_from_slice(&MAGIC);
        head[4] = if self.is_echo { ECHO } else { TRAIN };
        head[5..9].copy_from_slice(&self.train.to_be_bytes());
        head[9..13].copy_from_slice(&self.packet.to_be_bytes());
        let nanos = u64::try_from(self.sent.as_nanos()).unwrap_or(u64::MAX);
        head[13..].copy_from_slice(&nanos.to_be_bytes());
    }

    /// Parses a packet; `None` for any other datagram.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (&kind, rest) = bytes.strip_prefix(&MAGIC)?.split_first()?;
        let (train, rest) = take_u32(rest)?;
        let (packet, rest) = take_u32(rest)?;
        let (nanos, _) = rest.split_first_chunk::<8>()?;
        let is_echo = match kind {
            ECHO => true,
            TRAIN => false,
            _ => return None,
        };
        Some(Self { is_echo, train, packet, sent: Duration::from_nanos(u64::from_be_bytes(*nanos)) })
    }
}

fn take_u32(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (value, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*value), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: Nonce = Nonce([7; 16]);

    fn plan() -> TrainPlan {
        TrainPlan { count: 9, message: Bytes::new(1472), rate: Some(Rate::mbit(5000)) }
    }

    #[test]
    fn requests_are_parsed_as_encoded_and_impossible_messages_refused() {
        for request in [
            UdpRequest::Echo { number: 3 },
            UdpRequest::Train { number: 4, plan: plan() },
            UdpRequest::Train { number: 5, plan: TrainPlan { rate: None, ..plan() } },
            UdpRequest::Close,
        ] {
            let bytes = request.encode(NONCE, Bytes::new(100));
            assert_eq!(UdpRequest::parse(&bytes, NONCE), Some(request));
            assert_eq!(UdpRequest::parse(&bytes, Nonce([8; 16])), None);
            assert_eq!(UdpRequest::parse(&bytes[..20], NONCE), None);
        }
        assert_eq!(UdpRequest::Echo { number: 3 }.encode(NONCE, Bytes::new(1472)).len(), 1472);
        for message in [0, 20, 65_508] {
            let plan = TrainPlan { message: Bytes::new(message), ..plan() };
            let bytes = UdpRequest::Train { number: 1, plan }.encode(NONCE, Bytes::ZERO);
            assert_eq!(UdpRequest::parse(&bytes, NONCE), None, "{message}");
        }
    }

    #[test]
    fn packets_and_nonces_are_parsed_as_encoded() {
        let packet =
            UdpPacket { is_echo: false, train: 2, packet: 11, sent: Duration::from_nanos(123_456_789) };
        let mut buffer = [0xff; 64];
        packet.write(&mut buffer);
        assert_eq!(UdpPacket::parse(&buffer), Some(packet));
        assert_eq!(UdpPacket::parse(&buffer[..20]), None);
        assert_eq!(UdpPacket::parse(b"HTTP/1.1 200 OK, and more text after it"), None);
        assert_eq!(Nonce::from_hex(&NONCE.to_hex()), Some(NONCE));
        for text in ["", "07", "+a070707070707070707070707070707", "\u{e4}7070707070707070707070707070707"] {
            assert_eq!(Nonce::from_hex(text), None, "{text}");
        }
    }
}
