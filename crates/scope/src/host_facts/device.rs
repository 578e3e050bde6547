//! Facts about the outgoing network device.

use std::io;
use std::net::IpAddr;

use longhaul_core::host_check::{DeviceFacts, LinkNegotiation, Offload, Qdisc, Reading};
use longhaul_core::units::Rate;
use longhaul_sys::ethtool::{Ethtool, Features, LinkModes};
use longhaul_sys::link::{self, Link};
use longhaul_sys::qdisc;

use super::kernel_tree::KernelTree;
use super::processors;

/// Reads the device of the route to `host`, or of the default route.
pub(super) fn outgoing(tree: &KernelTree, host: Option<IpAddr>) -> Reading<DeviceFacts> {
    let link = match host {
        Some(host) => link::towards(host).map_err(|error| format!("route to {host}: {error}"))?,
        None => link::of_default_route()
            .map_err(|error| format!("default route: {error}"))?
            .ok_or("there is no default route, only loopback")?,
    };
    Ok(facts(tree, &link))
}

fn facts(tree: &KernelTree, link: &Link) -> DeviceFacts {
    let ethtool = Ethtool::open().map_err(|error| format!("ethtool: {error}"));
    let ask = |what: &str, error: &io::Error| format!("ethtool, {what} of {}: {error}", link.name);
    let rings = |tool: &Ethtool| tool.rings(link.index).map_err(|error| ask("ring sizes", &error));
    let features = |tool: &Ethtool| tool.features(link.index).map_err(|error| ask("features", &error));
    let ethtool = ethtool.as_ref().map_err(Clone::clone);
    let state = ethtool.clone().and_then(|tool| tool.link(link.index).map_err(|error| ask("link", &error)));
    let state = state.as_ref().map_err(Clone::clone);
    let speed =
        state.clone().and_then(|state| state.speed.as_ref().copied().map_err(|error| ask("speed", error)));
    DeviceFacts {
        name: link.name.clone(),
        is_loopback: link.is_loopback,
        mtu: link.mtu.ok_or_else(|| format!("rtnetlink: no MTU of {}", link.name)),
        qdisc: queueing(link),
        speed: has_link(link).and(speed),
        negotiation: has_modes(link).and(state).map(|state| negotiation(&state.modes)),
        rings: ethtool.clone().and_then(rings),
        offloads: ethtool.and_then(features).map(|features| offloads(&features)),
        numa: processors::numa(tree, link),
    }
}

/// Refuses virtual devices, whose drivers report a nominal speed (tun: 10 Mbit/s).
fn has_link(link: &Link) -> Reading<()> {
    const WITHOUT: [&str; 5] = ["tun", "veth", "dummy", "ifb", "wireguard"];
    match link.kind.as_deref() {
        Some(kind) if WITHOUT.contains(&kind) => {
            Err(format!("{} is a virtual device ({kind}) without a link", link.name))
        }
        _ => Ok(()),
    }
}

/// Refuses devices that other devices carry: some answer with the modes of those, and none of them
/// can be set.
fn has_modes(link: &Link) -> Reading<()> {
    match &link.kind {
        Some(kind) => Err(format!("{} is a virtual device ({kind}): the devices below it decide", link.name)),
        None => Ok(()),
    }
}

fn negotiation(modes: &LinkModes) -> LinkNegotiation {
    let fastest = |names: &[String]| names.iter().filter_map(|name| mode_rate(name)).max();
    LinkNegotiation {
        is_on: modes.is_negotiated,
        is_possible: modes.supported.iter().any(|name| name == "Autoneg"),
        fastest: fastest(&modes.supported),
        fastest_offered: fastest(&modes.advertised),
        fastest_of_peer: fastest(&modes.peer),
    }
}

/// Returns the rate of a link mode, whose name begins with it in Mbit/s: 100000baseKR4/Full.
fn mode_rate(name: &str) -> Option<Rate> {
    let mbits: u64 = name.split_once("base")?.0.parse().ok()?;
    Some(Rate::bits_per_sec(mbits.checked_mul(1_000_000)?))
}

fn queueing(link: &Link) -> Reading<Qdisc> {
    let listed = qdisc::of_device(link.index)
        .map_err(|error| format!("rtnetlink, qdisc of {}: {error}", link.name))?;
    let is_default = listed.is_default;
    let mut kinds = listed.kinds.into_iter();
    let root = kinds.next().ok_or_else(|| format!("rtnetlink: no qdisc of {}", link.name))?;
    Ok(Qdisc { root, children: kinds.collect(), is_default })
}

/// Groups kernel features as ethtool(8) does; a feature that is neither active nor switchable is
/// off.
fn offloads(features: &Features) -> Vec<Offload> {
    // Those of IPv4 decide; those of IPv6 are switched with them.
    type Names = &'static [&'static str];
    const NAMES: [(&str, Names, Names); 6] = [
        ("tso", &["tx-tcp-segmentation"], &["tx-tcp6-segmentation"]),
        ("gso", &["tx-generic-segmentation"], &[]),
        ("gro", &["rx-gro"], &[]),
        ("sg", &["tx-scatter-gather"], &[]),
        ("tx", &["tx-checksum-ip-generic", "tx-checksum-ipv4"], &["tx-checksum-ipv6"]),
        ("rx", &["rx-checksum"], &[]),
    ];
    let has = |list: &[String], name: &str| list.iter().any(|feature| feature == name);
    let is_off = |name: &&str| !has(&features.active, name) && has(&features.changeable, name);
    let offload = |(name, deciding, further): (&'static str, Names, Names)| {
        let on = deciding.iter().any(|name| has(&features.active, name));
        let can_change = deciding.iter().any(is_off);
        let all = deciding.iter().chain(further).copied().filter(|_| can_change);
        Offload { name, on, switchable: all.filter(is_off).collect() }
    };
    NAMES.map(offload).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<T: FromIterator<String>>(names: &[&str]) -> T {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn features_become_offloads() {
        let features = Features {
            active: names(&["rx-gro", "tx-checksum-ipv4", "tx-tcp6-segmentation"]),
            changeable: names(&["rx-gro", "tx-tcp-segmentation", "tx-scatter-gather", "tx-checksum-ipv6"]),
        };
        let changeable = names(&["tx-tcp-segmentation", "tx-tcp6-segmentation"]);
        let off = Features { active: Vec::new(), changeable };
        for (features, name, on, switchable) in [
            (&features, "gro", true, &[][..]),
            (&features, "tso", false, &["tx-tcp-segmentation"]),
            (&features, "sg", false, &["tx-scatter-gather"]),
            (&features, "tx", true, &[]),
            (&features, "rx", false, &[]),
            (&off, "tso", false, &["tx-tcp-segmentation", "tx-tcp6-segmentation"]),
        ] {
            let found = offloads(features).into_iter().find(|offload| offload.name == name).unwrap();
            assert_eq!(found, Offload { name, on, switchable: switchable.to_vec() });
        }
    }

    #[test]
    fn virtual_devices_have_no_speed() {
        let link = |kind: Option<&str>| {
            let (name, kind) = ("x0".to_owned(), kind.map(str::to_owned));
            Link { index: 1, name, mtu: None, is_loopback: false, kind, address: Vec::new() }
        };
        assert!(has_link(&link(Some("tun"))).unwrap_err().contains("x0 is a virtual device (tun)"));
        assert!(has_link(&link(None)).is_ok() && has_link(&link(Some("vlan"))).is_ok());
        assert!(has_modes(&link(Some("vlan"))).unwrap_err().contains("x0 is a virtual device (vlan)"));
        assert!(has_modes(&link(None)).is_ok());
    }

    #[test]
    fn link_modes_become_rates() {
        let [fastest, fastest_offered, fastest_of_peer] =
            [100, 1, 10].map(|gbits| Some(Rate::bits_per_sec(gbits * 1_000_000_000)));
        let modes = LinkModes {
            supported: names(&["Autoneg", "TP", "1000baseT/Full", "100000baseKR4/Full", "25000baseCR/Full"]),
            advertised: names(&["Autoneg", "1000baseT/Full"]),
            peer: names(&["basement", "99999999999999999999base/Full", "10000baseT/Full"]),
            is_negotiated: true,
        };
        let (is_on, is_possible) = (true, true);
        let expected = LinkNegotiation { is_on, is_possible, fastest, fastest_offered, fastest_of_peer };
        assert_eq!(negotiation(&modes), expected);
        // As virtio answers.
        assert_eq!(negotiation(&LinkModes::default()), LinkNegotiation::default());
    }
}
