//! Settings of network devices: queueing discipline, ring sizes, and features.

use std::io;

use longhaul_core::host_check::{QDISC, RINGS};
use longhaul_sys::ethtool::Ethtool;
use longhaul_sys::{link, qdisc};
use rustix::thread::{CapabilitySet, capabilities};

/// Reads a property of a device; a feature is "on" or "off".
pub(super) fn read(device: &str, property: &str) -> io::Result<String> {
    let device = link::named(device)?.index;
    match property {
        QDISC => Ok(qdisc::of_device(device)?.kinds.join(" of ")),
        RINGS => {
            let rings = Ethtool::open()?.rings(device)?;
            Ok(format!("rx {} tx {}", rings.rx, rings.tx))
        }
        feature => {
            let features = Ethtool::open()?.features(device)?;
            let has = |names: &[String]| names.iter().any(|name| name == feature);
            match (has(&features.active), has(&features.changeable)) {
                (true, _) => Ok("on".to_owned()),
                (false, true) => Ok("off".to_owned()),
                (false, false) => Err(invalid("the device cannot switch it")),
            }
        }
    }
}

/// Says whether this process may change a device, and whether the change can be undone.
pub(super) fn check_writable(device: &str, property: &str) -> io::Result<()> {
    if !capabilities(None)?.effective.contains(CapabilitySet::NET_ADMIN) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    if property == QDISC && !qdisc::of_device(link::named(device)?.index)?.is_default {
        return Err(invalid(
            "this qdisc was set by tc or a network manager; its options could not be restored",
        ));
    }
    Ok(())
}

/// Writes a property of a device; a qdisc that the kernel would choose by itself is left to it.
pub(super) fn write(device: &str, property: &str, value: &str) -> io::Result<()> {
    let device = link::named(device)?.index;
    match property {
        QDISC => write_qdisc(device, value),
        RINGS => {
            let (rx, tx) = sizes(value).ok_or_else(|| invalid("the sizes are not understood"))?;
            Ethtool::open()?.set_rings(device, rx, tx)
        }
        feature => {
            let on = ["off", "on"].iter().position(|known| *known == value);
            let on = on.ok_or_else(|| invalid("a feature is on or off"))? == 1;
            Ethtool::open()?.set_feature(device, feature, on)
        }
    }
}

/// Returns whether a property has the value that was written; a driver may round sizes of rings up.
pub(super) fn is_taken(property: &str, now: &str, wanted: &str) -> bool {
    let is_large_enough =
        || sizes(now).zip(sizes(wanted)).is_some_and(|(now, wanted)| now.0 >= wanted.0 && now.1 >= wanted.1);
    now == wanted || property == RINGS && is_large_enough()
}

fn write_qdisc(device: u32, value: &str) -> io::Result<()> {
    if !qdisc::of_device(device)?.is_default {
        qdisc::reset(device)?;
    }
    if qdisc::of_device(device)?.kinds.join(" of ") == value {
        return Ok(());
    }
    let kind = value.rsplit(' ').next().unwrap_or(value);
    qdisc::replace(device, kind).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => invalid(&format!("this kernel has no qdisc {kind} (module sch_{kind})")),
        _ => error,
    })
}

/// Reads "rx 512 tx 512".
fn sizes(value: &str) -> Option<(u32, u32)> {
    let (rx, tx) = value.strip_prefix("rx ")?.split_once(" tx ")?;
    Some((rx.parse().ok()?, tx.parse().ok()?))
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_no_property_are_refused_and_rings_may_be_larger_than_asked_for() {
        for (property, value) in
            [(RINGS, "512"), (RINGS, "rx 1 tx"), (RINGS, "rx -1 tx 1"), ("rx-gro", "maybe"), ("none", "on")]
        {
            assert!(write("lo", property, value).is_err(), "{property} {value}");
        }
        assert!(read("lo", "none").is_err() && read("lo", RINGS).is_err());
        assert_eq!(read("lo", "tx-tcp-segmentation").unwrap(), "on");
        assert!(is_taken(RINGS, "rx 512 tx 1024", "rx 278 tx 1024"));
        for now in ["rx 256 tx 1024", "rx 512 tx 512", "512"] {
            assert!(!is_taken(RINGS, now, "rx 278 tx 1024"), "{now}");
        }
        assert!(!is_taken(QDISC, "rx 512 tx 1024", "rx 278 tx 1024"));
    }
}
