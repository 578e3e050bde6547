//! Queries drivers of network devices by ethtool over generic netlink (kernel documentation,
//! networking/ethtool-netlink; Linux 5.6), in the calling thread's network namespace and without
//! privilege; changes them with CAP_NET_ADMIN.

use std::io;

use longhaul_core::host_check::RingSizes;
use longhaul_core::units::Rate;
use rustix::net::netlink;

use crate::link::text;
use crate::rtnetlink::{Attributes, HEADER, NLM_F_ACK, Netlink, Request, cut_short};

/// The number of the control family (`GENL_ID_CTRL`), which resolves other families, and its
/// request.
const CONTROL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// Bytes of `struct genlmsghdr`.
const GENL: usize = 4;

const LINKMODES_GET: u8 = 4;
const FEATURES_GET: u8 = 11;
const FEATURES_SET: u8 = 12;
const RINGS_GET: u8 = 15;
const RINGS_SET: u8 = 16;
/// The first attribute of each request, and the device index in it.
const HEADER_ATTRIBUTE: u16 = 1;
const HEADER_DEVICE: u16 = 1;

const LINKMODES_AUTONEG: u16 = 2;
const LINKMODES_OURS: u16 = 3;
const LINKMODES_PEER: u16 = 4;
const LINKMODES_SPEED: u16 = 5;
const RINGS_RX_MAX: u16 = 2;
const RINGS_TX_MAX: u16 = 5;
const RINGS_RX: u16 = 6;
const RINGS_TX: u16 = 9;
const FEATURES_CHANGEABLE: u16 = 2;
const FEATURES_WANTED: u16 = 3;
const FEATURES_ACTIVE: u16 = 4;
const BITSET_BITS: u16 = 3;
const BITSET_BIT: u16 = 1;
const BIT_NAME: u16 = 2;

/// Names of features, as in the kernel ("tx-tcp-segmentation").
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    /// The enabled features.
    pub active: Vec<String>,
    /// The features that the driver can switch.
    pub changeable: Vec<String>,
}

/// Names of link modes, as the kernel has them ("10000baseT/Full", "Autoneg").
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkModes {
    /// Those that the device is capable of.
    pub supported: Vec<String>,
    /// Those that it offers to the other end.
    pub advertised: Vec<String>,
    /// Those that the other end offers; none where the driver does not say.
    pub peer: Vec<String>,
    /// Whether both ends choose the mode by their offers; else it is fixed.
    pub is_negotiated: bool,
}

/// What a driver says of a device's link.
#[derive(Debug)]
pub struct LinkState {
    /// The speed; NotFound if the driver reports it as unknown.
    pub speed: io::Result<Rate>,
    /// The modes.
    pub modes: LinkModes,
}

/// A socket for requests to drivers.
#[derive(Debug)]
pub struct Ethtool {
    netlink: Netlink,
    family: u16,
}

impl Ethtool {
    /// Opens a netlink socket and resolves the family.
    ///
    /// # Errors
    /// `Unsupported` from a kernel without ethtool over netlink, or where a sandbox refuses generic
    /// netlink; else the kernel's error, such as EMFILE.
    pub fn open() -> io::Result<Self> {
        let netlink = Netlink::open_protocol(Some(netlink::GENERIC));
        let netlink = netlink.map_err(|error| open_error("open a socket of generic netlink", &error))?;
        let mut request = request(CONTROL, CTRL_CMD_GETFAMILY, 0);
        request.attribute(CTRL_ATTR_FAMILY_NAME, b"ethtool\0");
        let answer =
            netlink.ask(request).map_err(|error| open_error("resolve the netlink family ethtool", &error))?;
        let id = attributes(&answer).get(CTRL_ATTR_FAMILY_ID).and_then(|id| id.try_into().ok());
        let family = id.map(u16::from_ne_bytes).ok_or_else(cut_short)?;
        Ok(Self { netlink, family })
    }

    /// Returns the state of a device's link.
    ///
    /// # Errors
    /// EOPNOTSUPP if the driver does not report it.
    pub fn link(&self, device: u32) -> io::Result<LinkState> {
        let answer = self.ask(LINKMODES_GET, device)?;
        let attributes = attributes(&answer);
        let speed = known_speed(attributes.number(LINKMODES_SPEED));
        Ok(LinkState { speed, modes: link_modes(&attributes) })
    }

    /// Returns the sizes of a device's rings.
    ///
    /// # Errors
    /// EOPNOTSUPP if the driver does not report them.
    pub fn rings(&self, device: u32) -> io::Result<RingSizes> {
        let answer = self.ask(RINGS_GET, device)?;
        let read = |kind| attributes(&answer).number(kind);
        let rings = || {
            Some(RingSizes {
                rx: read(RINGS_RX)?,
                rx_max: read(RINGS_RX_MAX)?,
                tx: read(RINGS_TX)?,
                tx_max: read(RINGS_TX_MAX)?,
            })
        };
        rings().ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the driver names no sizes"))
    }

    /// Returns a device's features.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn features(&self, device: u32) -> io::Result<Features> {
        let answer = self.ask(FEATURES_GET, device)?;
        let names =
            |kind| attributes(&answer).get(kind).map(|set| bit_names(set, true)).ok_or_else(cut_short);
        Ok(Features { active: names(FEATURES_ACTIVE)?, changeable: names(FEATURES_CHANGEABLE)? })
    }

    /// Sets the sizes of a device's rings, in packets; a driver may restart the link for it.
    ///
    /// # Errors
    /// EPERM without CAP_NET_ADMIN, EINVAL for a size beyond the maximum, EOPNOTSUPP if the driver
    /// does not resize them.
    pub fn set_rings(&self, device: u32, rx: u32, tx: u32) -> io::Result<()> {
        let mut request = device_request(self.family, RINGS_SET, device, NLM_F_ACK);
        request.attribute(RINGS_RX, &rx.to_ne_bytes());
        request.attribute(RINGS_TX, &tx.to_ne_bytes());
        self.netlink.ask(request).map(drop)
    }

    /// Requests that a feature is on or off; whether it is, [`Self::features`] tells: it may depend
    /// on others.
    ///
    /// # Errors
    /// EPERM without CAP_NET_ADMIN, EOPNOTSUPP for a name that the kernel does not know.
    pub fn set_feature(&self, device: u32, name: &str, on: bool) -> io::Result<()> {
        // Without NLM_F_ACK: the kernel answers with the features that it has changed.
        let mut request = device_request(self.family, FEATURES_SET, device, 0);
        request.nested(FEATURES_WANTED | NESTED, |set| put_bits(set, &[(name, on)]));
        self.netlink.ask(request).map(drop)
    }

    fn ask(&self, command: u8, device: u32) -> io::Result<Vec<u8>> {
        self.netlink.ask(device_request(self.family, command, device, 0))
    }
}

/// Says which operation of [`Ethtool::open`] failed, and whether it is one that the kernel lacks or
/// a sandbox refuses.
fn open_error(operation: &str, error: &io::Error) -> io::Error {
    let message = format!("cannot {operation}: {error}");
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EPROTONOSUPPORT | libc::EPERM | libc::EACCES) => io::Error::new(
            io::ErrorKind::Unsupported,
            format!("{message}; it needs Linux 5.6, and no sandbox"),
        ),
        _ => io::Error::new(error.kind(), message),
    }
}

fn device_request(family: u16, command: u8, device: u32, flags: u16) -> Request {
    let mut request = request(family, command, flags);
    request.nested(HEADER_ATTRIBUTE | NESTED, |header| {
        header.attribute(HEADER_DEVICE, &device.to_ne_bytes());
    });
    request
}

fn link_modes(answer: &Attributes<'_>) -> LinkModes {
    let ours = answer.get(LINKMODES_OURS).unwrap_or_default();
    LinkModes {
        supported: bit_names(ours, false),
        advertised: bit_names(ours, true),
        peer: bit_names(answer.get(LINKMODES_PEER).unwrap_or_default(), true),
        is_negotiated: answer.get(LINKMODES_AUTONEG) == Some(&[1]),
    }
}

/// Converts a speed in Mbit/s; 0 and -1 (SPEED_UNKNOWN) are errors.
fn known_speed(mbits: Option<u32>) -> io::Result<Rate> {
    let known = mbits.filter(|mbits| ![0, u32::MAX].contains(mbits));
    let rate = known.map(|mbits| Rate::bits_per_sec(u64::from(mbits) * 1_000_000));
    rate.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the driver reports it as unknown"))
}

/// Marks an attribute that contains others (NLA_F_NESTED), as generic netlink requires.
const NESTED: u16 = 0x8000;

fn request(family: u16, command: u8, flags: u16) -> Request {
    let mut request = Request::new(family, flags);
    // Version 1 of the family.
    request.push(&[command, 1, 0, 0]);
    request
}

fn attributes(answer: &[u8]) -> Attributes<'_> {
    Attributes::after(answer, HEADER + GENL)
}

/// Returns the names of the bits of a set: those that are set, or all of its mask.
fn bit_names(bitset: &[u8], only_set: bool) -> Vec<String> {
    let set = Attributes::after(bitset, 0);
    // A bitset without a mask lists the bits that are set.
    let all = !only_set || set.get(NO_MASK).is_some();
    let bits = set.within(BITSET_BITS).filter(|(kind, _)| *kind == BITSET_BIT);
    let bits = bits.map(|(_, bit)| Attributes::after(bit, 0));
    let wanted = bits.filter(|bit| all || bit.get(BIT_VALUE).is_some());
    wanted.filter_map(|bit| bit.get(BIT_NAME).map(text)).collect()
}

/// Appends the bits of a bitset, each set or not.
fn put_bits(set: &mut Request, bits: &[(&str, bool)]) {
    set.nested(BITSET_BITS | NESTED, |list| {
        for (name, on) in bits {
            list.nested(BITSET_BIT | NESTED, |bit| {
                bit.attribute(BIT_NAME, &[name.as_bytes(), &[0]].concat());
                if *on {
                    bit.attribute(BIT_VALUE, &[]);
                }
            });
        }
    });
}

/// Present if the bitset is a list; otherwise each bit has a mask, and a value if set.
const NO_MASK: u16 = 1;
const BIT_VALUE: u16 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn bitset(is_list: bool, bits: &[(&str, bool)]) -> Vec<u8> {
        let mut set = Request::new(0, 0);
        put_bitset(&mut set, is_list, bits);
        set.finish()[HEADER..].to_vec()
    }

    fn put_bitset(set: &mut Request, is_list: bool, bits: &[(&str, bool)]) {
        if is_list {
            set.attribute(NO_MASK, &[]);
        }
        put_bits(set, bits);
    }

    #[test]
    fn link_modes_are_supported_where_masked_and_advertised_where_set() {
        let modes = |autoneg: Option<u8>| {
            let mut answer = Request::new(0, 0);
            if let Some(autoneg) = autoneg {
                answer.attribute(LINKMODES_AUTONEG, &[autoneg]);
                let ours = [("Autoneg", true), ("1000baseT/Full", true), ("10000baseT/Full", false)];
                answer.nested(LINKMODES_OURS | NESTED, |set| put_bitset(set, false, &ours));
                answer.nested(LINKMODES_PEER | NESTED, |set| {
                    put_bitset(set, true, &[("1000baseT/Full", false)])
                });
            }
            link_modes(&Attributes::after(&answer.finish(), HEADER))
        };
        let names = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        let negotiated = LinkModes {
            supported: names(&["Autoneg", "1000baseT/Full", "10000baseT/Full"]),
            advertised: names(&["Autoneg", "1000baseT/Full"]),
            peer: names(&["1000baseT/Full"]),
            is_negotiated: true,
        };
        assert_eq!(modes(Some(1)), negotiated);
        assert_eq!(modes(Some(0)), LinkModes { is_negotiated: false, ..negotiated });
        assert_eq!(modes(None), LinkModes::default());
    }

    #[test]
    fn bitset_is_a_list_or_has_values_and_an_unknown_speed_is_none() {
        assert_eq!(bit_names(&bitset(true, &[("a", false), ("b", false)]), true), ["a", "b"]);
        assert_eq!(bit_names(&bitset(false, &[("a", false), ("b", true)]), true), ["b"]);
        let whole = bitset(true, &[("tx-tcp-segmentation", false)]);
        for end in 0..whole.len() {
            assert!(bit_names(&whole[..end], true).len() <= 1);
        }
        for unknown in [None, Some(0), Some(u32::MAX)] {
            assert_eq!(known_speed(unknown).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        assert_eq!(known_speed(Some(400_000)).unwrap(), Rate::bits_per_sec(400_000_000_000));
    }

    #[test]
    fn only_what_the_kernel_lacks_or_a_sandbox_refuses_is_unsupported() {
        for (code, is_unsupported) in [
            (libc::ENOENT, true),
            (libc::EPROTONOSUPPORT, true),
            (libc::EPERM, true),
            (libc::EACCES, true),
            (libc::EMFILE, false),
            (libc::ENOBUFS, false),
            (libc::EINTR, false),
        ] {
            let cause = io::Error::from_raw_os_error(code);
            let error = open_error("open a socket", &cause);
            let kind = if is_unsupported { io::ErrorKind::Unsupported } else { cause.kind() };
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(&format!("cannot open a socket: {cause}")), "{error}");
            assert_eq!(error.to_string().contains("Linux 5.6"), is_unsupported, "{error}");
        }
    }

    #[test]
    fn loopback_has_features_but_neither_rings_nor_a_link() {
        let loopback = crate::link::towards([127, 0, 0, 1].into()).unwrap().index;
        let ethtool = match Ethtool::open() {
            Ok(ethtool) => ethtool,
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{error}");
                return println!("skipped: {error}");
            }
            Err(error) => panic!("{error}"),
        };
        let features = ethtool.features(loopback).unwrap();
        assert!(features.active.iter().any(|name| name == "loopback"), "{features:?}");
        assert!(features.changeable.iter().any(|name| name == "tx-tcp-segmentation"), "{features:?}");
        assert!(ethtool.rings(loopback).is_err() && ethtool.link(loopback).is_err());
        assert!(ethtool.features(u32::MAX >> 1).is_err());
    }

    #[test]
    fn refused_changes_are_named() {
        crate::qdisc::tests::with_veth(1, |device| {
            let ethtool = Ethtool::open().unwrap();
            let code = |result: io::Result<()>| result.unwrap_err().raw_os_error();
            assert_eq!(code(ethtool.set_feature(device, "no-feature", true)), Some(libc::EOPNOTSUPP));
            // veth has no rings.
            assert_eq!(code(ethtool.set_rings(device, 512, 512)), Some(libc::EOPNOTSUPP));
        });
    }
}
