//! The measurement endpoint of `serve --measure`: what `longhaul probe` asks for.
//!
//! ```text
//!  GET /.longhaul/measure          what is offered
//!  GET /.longhaul/measure/stream   bytes over this connection       <- stream
//!  PUT /.longhaul/measure/stream   bytes of the client, discarded   <- inbound
//!  GET /.longhaul/measure/udp      a UDP port, for this client only <- udp_port -> train
//! ```
//!
//! It sends only to an address that has completed a TCP handshake and shown a random number from
//! the answer, never more than was requested, and never faster than the ceiling for all together,
//! and not through a proxy: it cannot be made to flood a third party, but for a proxy that hides
//! itself.

mod inbound;
mod rate_ceiling;
mod stream;
mod train;
mod udp_port;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use longhaul_core::probe::message::{MeasureOffer, PROBE_HEADER, STREAM_PATH, UDP_PATH, VERSION};
use longhaul_core::proto::http::{RequestBody, RequestHead};
use longhaul_core::units::{Bytes, Rate};
use longhaul_sys::host;
use tokio::sync::{Semaphore, watch};

use crate::config::MeasureConfig;
use crate::connection::targets::without_query;
use crate::paths::disks::Disk;
use crate::reply::Reply;
use crate::shutdown::ServerPhase;
use rate_ceiling::{ProbeId, RateCeiling};
use stream::{StreamRequest, StreamSource};

/// UDP ports open at once: two measurements at a time already disturb each other.
pub(crate) const UDP_PORTS: usize = 2;
/// Streams being sent or received at once: four measurements of 16.
const STREAMS: usize = 64;
/// The most bytes of one stream: 3 s of 40 Gbit/s.
const STREAM_BYTES: Bytes = Bytes::gib(14);
/// Fields that proxies add (RFC 9110, 7.6.3; RFC 7239): the handshake has then proved the proxy's
/// address, not the client's.
const PROXY_FIELDS: [&str; 3] = ["via", "forwarded", "x-forwarded-for"];
/// The ceiling of UDP where none is configured.
const USUAL_CEILING: Rate = Rate::bits_per_sec(40_000_000_000);

/// The measurement endpoint.
pub(crate) struct Measurement {
    /// The configured ceiling of all that is sent and received.
    ceiling: Option<Arc<RateCeiling>>,
    ports: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    source: StreamSource,
    memory: Disk,
    phase: watch::Receiver<ServerPhase>,
}

impl fmt::Debug for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Measurement").field("ceiling", &self.ceiling).finish_non_exhaustive()
    }
}

impl Measurement {
    /// Makes the endpoint.
    ///
    /// # Errors
    /// What the kernel says of memory for the streams' bytes.
    pub(crate) fn new(config: &MeasureConfig, phase: watch::Receiver<ServerPhase>) -> std::io::Result<Self> {
        Ok(Self {
            ceiling: config.ceiling.map(RateCeiling::new),
            ports: Arc::new(Semaphore::new(UDP_PORTS)),
            streams: Arc::new(Semaphore::new(STREAMS)),
            source: StreamSource::new()?,
            memory: Disk::of_memory(),
            phase,
        })
    }

    /// Answers a request from `peer` that came over `socket`.
    pub(crate) fn reply(&self, request: &RequestHead, socket: BorrowedFd<'_>, peer: SocketAddr) -> Reply {
        if request.body() != RequestBody::None {
            return Reply::text(400, "a request for a measurement carries no body");
        }
        let probe = probe_of(request, peer.ip());
        match without_query(request) {
            STREAM_PATH => self.stream(request, socket, probe),
            UDP_PATH if PROXY_FIELDS.iter().any(|name| request.header(name).is_some()) => {
                Reply::text(403, "UDP is measured by a client that connects by itself, not through a proxy")
            }
            UDP_PATH => self.udp(socket, probe),
            _ => Reply::json(&self.offer(probe)),
        }
    }

    fn offer(&self, probe: ProbeId) -> MeasureOffer {
        MeasureOffer {
            version: VERSION,
            ceiling_bps: self.udp_ceiling(),
            allowed_bps: self.ceiling.as_ref().map(|ceiling| ceiling.allowed_to(probe)),
            receives: true,
            stream_bytes: STREAM_BYTES.get(),
            congestion: host::allowed_congestion_controls(),
            tcp_wmem_max: host::tcp_wmem_max().map(Bytes::get),
        }
    }

    fn udp_ceiling(&self) -> Rate {
        self.ceiling.as_ref().map_or(USUAL_CEILING, |ceiling| ceiling.total)
    }

    fn stream(&self, request: &RequestHead, socket: BorrowedFd<'_>, probe: ProbeId) -> Reply {
        let wanted = match StreamRequest::parse(request.target(), STREAM_BYTES) {
            Ok(wanted) => wanted,
            Err(why) => return Reply::text(400, why),
        };
        // To a privileged process the kernel grants others too, and loads their modules.
        if wanted.congestion.as_ref().is_some_and(|name| !self.offer(probe).congestion.contains(name)) {
            return Reply::text(400, "this congestion control is not offered");
        }
        let Ok(permit) = Arc::clone(&self.streams).try_acquire_owned() else { return busy() };
        // Pacing changes how slow start looks at the client: only where a ceiling was configured.
        let share = self.ceiling.as_ref().map(|ceiling| ceiling.join_stream(probe, socket)).transpose();
        match wanted.set_up(socket).and(share) {
            Ok(share) => self.source.reply(wanted.bytes).on(self.memory.clone()).holding((permit, share)),
            Err(error) => Reply::text(400, &format!("the kernel refuses these options: {error}")),
        }
    }

    fn udp(&self, socket: BorrowedFd<'_>, probe: ProbeId) -> Reply {
        let Ok(permit) = Arc::clone(&self.ports).try_acquire_owned() else { return busy() };
        match udp_port::open(self, socket, probe, permit) {
            Ok(offer) => Reply::json(&offer),
            Err(error) => Reply::text(503, &format!("cannot open a UDP port: {error}")),
        }
    }
}

/// Returns which probe a request of `client` belongs to; a client that numbers none has one.
fn probe_of(request: &RequestHead, client: IpAddr) -> ProbeId {
    let number = request.header(PROBE_HEADER).and_then(|text| u64::from_str_radix(text, 16).ok());
    ProbeId { client, number: number.unwrap_or(ProbeId::UNNUMBERED) }
}

fn busy() -> Reply {
    Reply::later(503, 10, "as many measurements as are allowed are running")
}
