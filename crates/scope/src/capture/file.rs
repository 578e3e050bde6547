//! Capture files: pcap and pcapng, packet by packet.

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use longhaul_core::failure::{Failure, FailureKind};
use pcap_parser::{Linktype, PcapBlockOwned, PcapError, create_reader};

use super::packet::Link;

/// Size of the reader's buffer in bytes; the largest packet is 64 KiB of payload (GSO) and its
/// headers.
const BUFFER: usize = 1 << 20;

/// One interface of a capture.
#[derive(Debug, Clone, Copy)]
struct Interface {
    link: Linktype,
    /// Time units per second.
    resolution: u64,
    /// Seconds to add to each packet's time.
    offset: i64,
}

impl Interface {
    fn time(self, units: u64) -> Duration {
        let resolution = self.resolution.max(1);
        let nanos = u128::from(units % resolution) * 1_000_000_000 / u128::from(resolution);
        // pcap stores 32-bit seconds; a later time is damage, and the limit keeps sums of times
        // from overflowing.
        let seconds = (units / resolution).saturating_add_signed(self.offset).min(u64::from(u32::MAX));
        Duration::new(seconds, nanos as u32)
    }
}

/// Reads every packet; returns the damage of the file, in a phrase.
///
/// `add` receives each packet's time, link type, bytes and length on the wire.
pub(super) fn read(
    from: impl Read + Send,
    path: &Path,
    mut add: impl FnMut(Duration, Link, &[u8], usize),
) -> Result<Option<String>, Failure> {
    let path = path.display();
    let not = |why: String| {
        let message = format!("{path} is no capture: {why}; write one with tcpdump -w FILE, or dumpcap");
        Failure::new(FailureKind::Data, message)
    };
    let mut reader = create_reader(BUFFER, from).map_err(|error| not(describe(&error)))?;
    let mut interfaces: Vec<Interface> = Vec::new();
    let mut packets = 0u64;
    let mut unknown = None;
    let damage = loop {
        let consumed = match reader.next() {
            Ok((offset, block)) => {
                if let Some((interface, units, data, length)) = packet(block, &mut interfaces) {
                    packets += 1;
                    match Link::of(interface.link) {
                        Some(link) => add(interface.time(units), link, data, length),
                        None => unknown = Some(interface.link.0),
                    }
                }
                Some(offset)
            }
            Err(PcapError::Eof) => break None,
            Err(PcapError::Incomplete(_)) => None,
            Err(PcapError::UnexpectedEof) => {
                break Some(format!("cut off after packet {packets}"));
            }
            Err(error) => break Some(format!("unreadable after packet {packets}: {}", describe(&error))),
        };
        match consumed {
            Some(offset) => reader.consume(offset),
            None if reader.reader_exhausted() => break Some(format!("cut off after packet {packets}")),
            None => {
                if let Err(error) = reader.refill() {
                    break Some(describe(&error));
                }
            }
        }
    };
    if packets == 0 && interfaces.is_empty() {
        return Err(not(damage.unwrap_or_else(|| "it is empty".into())));
    }
    match unknown {
        Some(link) => {
            let remedy = "capture on an Ethernet interface or with tcpdump -i any";
            let message =
                format!("the packets in {path} are of link type {link}, which is not known: {remedy}");
            Err(Failure::new(FailureKind::Data, message))
        }
        None => Ok(damage),
    }
}

/// Returns the packet of a block; records the interface if the block describes one.
fn packet<'a>(
    block: PcapBlockOwned<'a>,
    interfaces: &mut Vec<Interface>,
) -> Option<(Interface, u64, &'a [u8], usize)> {
    use pcap_parser::pcapng::Block;
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let resolution = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
            interfaces.push(Interface { link: header.network, resolution, offset: 0 });
            None
        }
        PcapBlockOwned::Legacy(packet) => {
            let interface = *interfaces.first()?;
            let seconds = u64::from(packet.ts_sec).saturating_mul(interface.resolution);
            let units = seconds.saturating_add(u64::from(packet.ts_usec));
            Some((interface, units, packet.data, packet.origlen as usize))
        }
        // Interface numbers restart with each section.
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            interfaces.clear();
            None
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(description)) => {
            let resolution = description.ts_resolution().unwrap_or(1_000_000);
            interfaces.push(Interface {
                link: description.linktype,
                resolution,
                offset: description.ts_offset(),
            });
            None
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            let interface = *interfaces.get(packet.if_id as usize)?;
            let units = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            let data = packet.data.get(..packet.caplen as usize).unwrap_or(packet.data);
            Some((interface, units, data, packet.origlen as usize))
        }
        // A simple packet has no time; other blocks are not packets.
        PcapBlockOwned::NG(_) => None,
    }
}

fn describe<I: AsRef<[u8]>>(error: &PcapError<I>) -> String {
    match error {
        PcapError::Eof => "it is empty".into(),
        PcapError::HeaderNotRecognized => "it begins neither as pcap nor as pcapng".into(),
        PcapError::ReadError => "it cannot be read to its end".into(),
        PcapError::BufferTooSmall => format!("a packet is larger than {BUFFER} bytes"),
        PcapError::UnexpectedEof | PcapError::Incomplete(_) => "it ends within its first block".into(),
        PcapError::NomError(_, kind) | PcapError::OwnedNomError(_, kind) => {
            format!("a block is malformed ({kind:?})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_damaged_interface_are_bounded() {
        let interface = |resolution, offset| Interface { link: Linktype::ETHERNET, resolution, offset };
        assert_eq!(interface(1000, 2).time(1500), Duration::from_millis(3500));
        for (resolution, offset) in [(0, 0), (1, i64::MAX), (1, i64::MIN)] {
            assert!(interface(resolution, offset).time(u64::MAX) <= Duration::from_secs(1 << 32));
        }
    }
}
