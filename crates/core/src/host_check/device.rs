//! The outgoing network device.

use super::Diagnosis;
use super::facts::{DeviceFacts, NumaFacts, Offload, Qdisc, Reading, RingSizes};
use super::finding::{BEFORE_EACH_TRANSFER, Finding, Fix, QDISC, RINGS, Severity, UDEV_RULES};
use super::target::Target;
use crate::units::Rate;

const ETHTOOL: &str = "ethtool(8); ESnet fasterdata, NIC tuning";
/// From this rate on jumbo frames and offloads decide whether one core keeps up (ESnet fasterdata:
/// tuning of hosts of 10 Gbit/s and more).
const FAST: Rate = Rate::bits_per_sec(10_000_000_000);
/// The MTU of jumbo frames.
const JUMBO: u32 = 9000;
/// The largest packet that segmentation offload hands over (IP's length field).
const SUPER_PACKET: u32 = 65_536;
/// How long the kernel may take from one look at a ring to the next (`netdev_budget_usecs`: 2 ms),
/// in seconds.
const POLL_INTERVAL: f64 = 0.002;
/// Queueing disciplines that limit the rate or spoil packets.
const SHAPERS: [&str; 6] = ["tbf", "htb", "netem", "hfsc", "cbq", "cake"];

pub(super) fn check(device: &Reading<DeviceFacts>, target: &Target, report: &mut Diagnosis) {
    let would_show =
        "MTU, queueing discipline, link rate, offloads, rings and NUMA node of the outgoing device";
    report.judge(device, "network device", would_show, summary);
    let Ok(device) = device else { return };
    let first = report.findings.len();
    check_properties(device, target, report);
    if !is_plain(&device.name) {
        let fixes = report.findings[first..].iter_mut().filter_map(|finding| finding.fix.as_mut());
        fixes.for_each(|fix| {
            *fix = Fix::advice(
                "no command is given: a shell or udev may misread the device's name; rename it to letters, digits and ._-",
            );
        });
    }
    if device.is_loopback {
        return;
    }
    let would_show = "whether the process runs on the processors next to the device";
    report.judge(&device.numa, "NUMA node", would_show, |numa| numa_node(*numa));
}

/// Says whether a name means itself in commands and rules, which are copied as root: the kernel
/// refuses only `/`, `:` and white space.
fn is_plain(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ['.', '_', '-'].contains(&c);
    !name.is_empty() && !name.starts_with('-') && name.chars().all(is_plain)
}

/// Checks what commands that name the device change.
fn check_properties(device: &DeviceFacts, target: &Target, report: &mut Diagnosis) {
    let name = &device.name;
    let would_show = "how many packets a second the rate takes";
    report.judge(&device.mtu, "MTU", would_show, |mtu| frame_size(*mtu, device, target));
    let would_show = "whether packets are paced, and whether something limits their rate";
    report.judge(&device.qdisc, "qdisc", would_show, |qdisc| queueing(qdisc, name));
    // Loopback has neither a link nor a driver.
    if device.is_loopback {
        return;
    }
    let would_show = "whether the link is as fast as the transfer is to be";
    report.judge(&device.speed, "link rate", would_show, |speed| link_rate(*speed, device, target));
    let would_show = "whether the kernel or the device handles many packets as one";
    report.judge(&device.offloads, "offloads", would_show, |offloads| batching(offloads, device, target));
    let would_show = "whether bursts fit between two looks of the kernel at the device";
    report.judge(&device.rings, "ring sizes", would_show, |rings| ring_sizes(*rings, device, target));
}

fn summary(device: &DeviceFacts) -> Finding {
    let kind = if device.is_loopback { "loopback: no link is in the way" } else { "the outgoing device" };
    Finding::new(Severity::Ok, device.name.clone(), "rtnetlink(7)").needs("any", kind)
}

fn packets_a_second(target: &Target, size: u32) -> f64 {
    target.rate.as_bytes_per_sec() as f64 / f64::from(size.max(1))
}

fn frame_size(mtu: u32, device: &DeviceFacts, target: &Target) -> Finding {
    let is_short = mtu < JUMBO && target.rate >= FAST && !device.is_loopback;
    let severity = if is_short { Severity::Advice } else { Severity::Ok };
    let needed = if is_short { "9000 where the whole path carries it" } else { "any" };
    let arithmetic = format!(
        "{} / {mtu} B = {:.0} packets a second; with {JUMBO} B {:.0}",
        target.rate,
        packets_a_second(target, mtu),
        packets_a_second(target, JUMBO)
    );
    let name = &device.name;
    Finding::new(severity, mtu.to_string(), "ESnet fasterdata, MTU")
        .needs(needed, arithmetic)
        .counted(mtu.into(), JUMBO.into(), "bytes")
        .fixed_by(
            Fix::command(format!("ip link set dev {name} mtu {JUMBO}"))
                .lasting(UDEV_RULES, udev_rule(name, &format!("ATTR{{mtu}}=\"{JUMBO}\"")))
                .noted("--fix leaves it as it is: hosts and switches of the link that take shorter frames drop longer ones"),
        )
}

fn queueing(qdisc: &Qdisc, name: &str) -> Finding {
    let kinds = || std::iter::once(&qdisc.root).chain(&qdisc.children);
    let measured = kinds().cloned().collect::<Vec<_>>().join(" of ");
    let shaper = kinds().find(|kind| SHAPERS.contains(&kind.as_str()));
    let is_fq = kinds().any(|kind| kind == "fq");
    // A device without a queue (loopback, tunnels) hands its packets on at once.
    let severity =
        if is_fq && shaper.is_none() || qdisc.root == "noqueue" { Severity::Ok } else { Severity::Advice };
    let arithmetic = match shaper {
        Some(shaper) => format!("{shaper} can delay, drop or limit what is sent: see tc -s qdisc"),
        None if is_fq => String::new(),
        None if qdisc.root == "noqueue" => "packets pass to the next device at once".to_owned(),
        None => "fq paces each connection; without it TCP paces by timers of its own (Linux 4.13), at more CPU time".to_owned(),
    };
    // Devices with several queues have an mq at the root, which takes the default for each queue.
    let (command, kinds) = match qdisc.root.as_str() {
        "mq" => (
            format!("sysctl -w net.core.default_qdisc=fq && tc qdisc replace dev {name} root mq"),
            "mq of fq",
        ),
        _ => (format!("tc qdisc replace dev {name} root fq"), "fq"),
    };
    // The default is for devices to come: applying it alone changes nothing here.
    let lasting = Fix::sysctl("net.core.default_qdisc", "fq").lasting;
    let fix = Fix { lasting, ..Fix::command(command) };
    let fix = if qdisc.is_default {
        fix.changing_device(name, QDISC, kinds)
    } else {
        fix.noted("this qdisc was set by tc or a network manager; --fix cannot restore its options")
    };
    let needed = if qdisc.root == "noqueue" { "any" } else { "fq" };
    let finding = Finding::new(severity, measured, "tc-fq(8); ESnet fasterdata, packet pacing")
        .needs(needed, arithmetic);
    // A shaper was configured on purpose.
    if shaper.is_some() { finding } else { finding.fixed_by(fix) }
}

fn link_rate(speed: Rate, device: &DeviceFacts, target: &Target) -> Finding {
    let severity = if speed < target.rate { Severity::Problem } else { Severity::Ok };
    Finding::new(severity, speed.to_string(), "ethtool(8)")
        .needs(target.rate.to_string(), "no stream is faster than the link")
        .counted(speed.as_bits_per_sec(), target.rate.as_bits_per_sec(), "bit/s")
        .fixed_by(faster_link(speed, device))
}

/// Says what makes a link faster than `speed`: one that is negotiated has the fastest mode that
/// both ends offer, a fixed one has to be fixed alike at both (IEEE 802.3, clauses 28 and 73).
/// `ethtool -s DEVICE autoneg on` offers all modes of the device.
fn faster_link(speed: Rate, device: &DeviceFacts) -> Fix {
    let name = &device.name;
    let link = match &device.negotiation {
        Ok(link) => link,
        Err(reason) => return Fix::advice(format!("what decides the rate was not read ({reason})")),
    };
    let Some(fastest) = link.fastest else {
        return Fix::advice(
            "the driver names no modes, as those of virtual machines: the rate is decided outside of this host",
        );
    };
    if fastest <= speed {
        return Fix::advice("the device has no faster mode: only another device helps");
    }
    if link.is_possible && !(link.is_on && link.fastest_offered >= Some(fastest)) {
        return ethtool(name, &format!("-s {name} autoneg on")).noted(format!(
            "this interrupts the link for seconds; the device then offers all its modes, up to {fastest}, to the other end, which must negotiate too"
        ));
    }
    if link.is_on {
        let limit = match link.fastest_of_peer {
            Some(peer) if peer < fastest => format!("the other end offers no more than {peer}"),
            _ => format!("the cable or the other end is the limit (ethtool {name} lists the offers of both)"),
        };
        return Fix::advice(format!("the device already offers {fastest}: {limit}"));
    }
    let mbits = fastest.as_bits_per_sec() / 1_000_000;
    ethtool(name, &format!("-s {name} speed {mbits} duplex full autoneg off")).noted(
        "the device cannot negotiate: set the other end to the same rate, for which cable and module must be made, or the link is lost",
    )
}

fn batching(offloads: &[Offload], device: &DeviceFacts, target: &Target) -> Finding {
    let name = &device.name;
    let off: Vec<&Offload> = offloads.iter().filter(|offload| !offload.on).collect();
    let (fixable, fixed): (Vec<&Offload>, Vec<&Offload>) =
        off.iter().partition(|offload| !offload.switchable.is_empty());
    let names = |offloads: &[&Offload]| offloads.iter().map(|offload| offload.name).collect::<Vec<_>>();
    let severity = match (fixable.is_empty(), target.rate >= FAST) {
        (true, _) => Severity::Ok,
        (false, true) => Severity::Problem,
        (false, false) => Severity::Advice,
    };
    let list = |on: bool| {
        let names = offloads.iter().filter(|offload| offload.on == on).map(|offload| offload.name);
        names.collect::<Vec<_>>().join(" ")
    };
    let measured = if off.is_empty() {
        format!("{} on", list(true))
    } else {
        format!("{} off, {} on", list(false), list(true))
    };
    let mtu = device.mtu.clone().unwrap_or(1500);
    let mut arithmetic = format!(
        "{} / {mtu} B = {:.0} packets a second to handle; / 64 KiB = {:.0}",
        target.rate,
        packets_a_second(target, mtu),
        packets_a_second(target, SUPER_PACKET)
    );
    if !fixed.is_empty() {
        arithmetic += &format!("; the driver has no {}", names(&fixed).join(", "));
    }
    let switches: Vec<String> = fixable.iter().map(|offload| format!("{} on", offload.name)).collect();
    // Segmentation depends on scatter-gather, and that on checksums, which are the later ones.
    let features = fixable.iter().rev().flat_map(|offload| &offload.switchable);
    let fix = ethtool(name, &format!("-K {name} {}", switches.join(" ")));
    let fix = features.fold(fix, |fix, feature| fix.changing_device(name, feature, "on"));
    let needed = if fixable.is_empty() {
        "all that the device has".to_owned()
    } else {
        format!("{} on", names(&fixable).join(" "))
    };
    Finding::new(severity, measured, ETHTOOL).needs(needed, arithmetic).fixed_by(fix)
}

fn ring_sizes(rings: RingSizes, device: &DeviceFacts, target: &Target) -> Finding {
    let name = &device.name;
    let mtu = device.mtu.clone().unwrap_or(1500);
    let needed = (packets_a_second(target, mtu) * POLL_INTERVAL).ceil() as u32;
    let small = |size: u32, max: u32| size < needed && size < max;
    let (rx, tx) = (small(rings.rx, rings.rx_max), small(rings.tx, rings.tx_max));
    let severity = if rx || tx { Severity::Advice } else { Severity::Ok };
    let arithmetic = format!(
        "{:.0} packets of {mtu} B a second x {:.0} ms between two looks of the kernel = {needed}",
        packets_a_second(target, mtu),
        POLL_INTERVAL * 1e3
    );
    let measured = format!("rx {} of {}, tx {} of {}", rings.rx, rings.rx_max, rings.tx, rings.tx_max);
    let (rx, tx) = (needed.min(rings.rx_max).max(rings.rx), needed.min(rings.tx_max).max(rings.tx));
    let sizes = format!("rx {rx} tx {tx}");
    let fix = ethtool(name, &format!("-G {name} {sizes}"))
        .changing_device(name, RINGS, sizes)
        .noted("the driver may restart its link");
    Finding::new(severity, measured, ETHTOOL)
        .needs(format!("rx {rx}, tx {tx}"), arithmetic)
        .counted(rings.rx.into(), needed.into(), "packets")
        .fixed_by(fix)
}

fn numa_node(numa: NumaFacts) -> Finding {
    let source = "numactl(8); ESnet fasterdata, interrupt binding";
    let nodes = numa.nodes;
    let Some(node) = numa.node else {
        return Finding::new(Severity::Ok, "none", source)
            .needs("any", format!("the device belongs to no node; this host has {nodes}"));
    };
    let severity = if nodes > 1 && numa.runs_elsewhere { Severity::Advice } else { Severity::Ok };
    Finding::new(severity, format!("{node} of {nodes}"), source)
        .needs(
            "process and device on one node",
            "data that crosses nodes passes the link between the processors twice",
        )
        .fixed_by(
            Fix::command(format!("numactl --cpunodebind={node} --membind={node} longhaul get URL"))
                .lasting_in_service(&[
                    "NUMAPolicy=bind".to_owned(),
                    format!("NUMAMask={node}"),
                    "CPUAffinity=numa".to_owned(),
                ])
                .noted(BEFORE_EACH_TRANSFER),
        )
}

/// Returns the udev rule that does something when a device appears.
fn udev_rule(name: &str, action: &str) -> String {
    format!("ACTION==\"add\", SUBSYSTEM==\"net\", NAME==\"{name}\", {action}")
}

/// Returns the fix that a call of ethtool(8) is.
fn ethtool(name: &str, arguments: &str) -> Fix {
    let rule = udev_rule(name, &format!("RUN+=\"/usr/sbin/ethtool {arguments}\""));
    Fix::command(format!("ethtool {arguments}")).lasting(UDEV_RULES, rule)
}

#[cfg(test)]
mod tests;
