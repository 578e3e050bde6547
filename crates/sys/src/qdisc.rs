//! Queueing disciplines of devices (tc(8)) over rtnetlink, in the calling thread's network
//! namespace.

use std::io;

use libc::{RTM_DELQDISC, RTM_GETQDISC, RTM_NEWQDISC, TCA_KIND};

use crate::link::{number_at, text};
use crate::rtnetlink::{Attributes, HEADER, NLM_F_ACK, Netlink, Request, messages};

/// Creates a queueing discipline, in place of the one that is there.
const NLM_F_CREATE_REPLACE: u16 = 0x500;

/// Bytes of `struct tcmsg`.
const TCMSG: usize = 20;
const TC_H_ROOT: u32 = u32::MAX;
/// The parent of what handles received packets.
const TC_H_INGRESS: u32 = 0xffff_fff1;
/// The discipline that has one below it for each queue of a device.
const MULTI_QUEUE: &str = "mq";
/// The handle given to it (`1:`); those below it have the parents `1:1`, `1:2`, and so on.
const MULTI_QUEUE_HANDLE: u32 = 1 << 16;

/// The queueing disciplines of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qdiscs {
    /// The root's kind, then those below it, each once.
    pub kinds: Vec<String>,
    /// Whether the kernel has chosen the root by itself: it has no handle.
    pub is_default: bool,
    /// How many are directly below the root.
    children: u32,
}

/// Returns the queueing disciplines of a device.
///
/// # Errors
/// The kernel's error; NotFound if none is listed.
pub fn of_device(device: u32) -> io::Result<Qdiscs> {
    let parts = Netlink::open()?.dump(request(RTM_GETQDISC, 0, device, (0, 0)))?;
    let listed = parse(device, parts.iter().flat_map(|part| messages(part)));
    listed.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the kernel lists no queueing discipline"))
}

/// Gives a device a queueing discipline with the options that are its default; one with several
/// queues keeps its root, and gets one for each queue.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN; ENOENT if the kernel has no such kind, after which the device has
/// the kernel's choice.
pub fn replace(device: u32, kind: &str) -> io::Result<()> {
    let now = of_device(device)?;
    let netlink = Netlink::open()?;
    let create = |place: (u32, u32), kind: &str| {
        let flags = NLM_F_ACK | NLM_F_CREATE_REPLACE;
        let mut request = request(RTM_NEWQDISC, flags, device, place);
        request.attribute(TCA_KIND, &[kind.as_bytes(), &[0]].concat());
        netlink.ask(request).map(drop)
    };
    if now.kinds[0] != MULTI_QUEUE {
        return create((0, TC_H_ROOT), kind);
    }
    create((MULTI_QUEUE_HANDLE, TC_H_ROOT), MULTI_QUEUE)?;
    let below = (1..=now.children).try_for_each(|queue| create((0, MULTI_QUEUE_HANDLE | queue), kind));
    below.inspect_err(|_| drop(reset(device)))
}

/// Removes a device's queueing disciplines: the kernel chooses others.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN; ENOENT if the kernel has chosen them already.
pub fn reset(device: u32) -> io::Result<()> {
    Netlink::open()?.ask(request(RTM_DELQDISC, NLM_F_ACK, device, (0, TC_H_ROOT))).map(drop)
}

/// Starts a message about a device; `place` is a handle and the parent's handle.
fn request(kind: u16, flags: u16, device: u32, place: (u32, u32)) -> Request {
    let mut request = Request::new(kind, flags);
    for word in [0, device, place.0, place.1, 0] {
        request.push(&word.to_ne_bytes());
    }
    request
}

fn parse<'a>(device: u32, listed: impl Iterator<Item = (u16, &'a [u8])>) -> Option<Qdiscs> {
    let mut kinds: Vec<String> = Vec::new();
    let (mut root_handle, mut parents) = (0, Vec::new());
    for (kind, message) in listed {
        let at = |offset| number_at(message, HEADER + offset).unwrap_or_default();
        let of_device = kind == RTM_NEWQDISC && at(4) == device && at(12) != TC_H_INGRESS;
        let Some(name) = Attributes::after(message, HEADER + TCMSG).get(TCA_KIND).filter(|_| of_device)
        else {
            continue;
        };
        let name = text(name);
        if at(12) == TC_H_ROOT {
            root_handle = at(8);
            kinds.retain(|known| *known != name);
            kinds.insert(0, name);
        } else {
            parents.push(at(12));
            if !kinds.contains(&name) {
                kinds.push(name);
            }
        }
    }
    let children = parents.iter().filter(|parent| *parent >> 16 == root_handle >> 16).count() as u32;
    (!kinds.is_empty()).then_some(Qdiscs { kinds, is_default: root_handle == 0, children })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::process::Command;

    use super::*;

    /// Runs `job` with a device that has `queues`, in a new network namespace.
    pub(crate) fn with_veth(queues: u32, job: impl FnOnce(u32) + Send + 'static) {
        crate::netns::tests::in_new_network(move || {
            let queues = queues.to_string();
            run(&format!("ip link add v0 up numtxqueues {queues} type veth peer v1"));
            run("ip link set v1 up");
            job(crate::link::named("v0").unwrap().index);
        });
    }

    fn run(command: &str) {
        let mut words = command.split(' ');
        assert!(Command::new(words.next().unwrap()).args(words).status().unwrap().success(), "{command}");
    }

    #[test]
    fn each_queue_of_a_device_gets_the_qdisc() {
        with_veth(4, |device| {
            let listed = || of_device(device).unwrap();
            // As hardware has it at its start.
            run("tc qdisc replace dev v0 root mq");
            assert_eq!((listed().kinds[0].as_str(), listed().children), ("mq", 4), "{:?}", listed());
            replace(device, "bfifo").unwrap();
            assert_eq!((listed().kinds, listed().children), (vec!["mq".to_owned(), "bfifo".to_owned()], 4));
            // Nothing is left half done.
            assert_eq!(replace(device, "none").unwrap_err().raw_os_error(), Some(libc::ENOENT));
            assert!(listed().is_default, "{:?}", listed());
        });
    }

    #[test]
    fn root_comes_first_and_each_kind_once() {
        let qdisc = |device: u32, handle: u32, parent: u32, kind: &str| {
            let mut message = request(RTM_NEWQDISC, 0, device, (handle, parent));
            message.attribute(TCA_KIND, kind.as_bytes());
            message.finish()
        };
        let dump = [
            qdisc(2, 0, 1, "fq"),
            qdisc(2, 0, 2, "fq"),
            qdisc(2, 0xffff_0000, TC_H_INGRESS, "ingress"),
            qdisc(2, 0, TC_H_ROOT, "mq"),
            qdisc(3, 0x8001_0000, TC_H_ROOT, "tbf"),
        ]
        .concat();
        let kinds = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let several = Qdiscs { kinds: kinds(&["mq", "fq"]), is_default: true, children: 2 };
        assert_eq!(parse(2, messages(&dump)), Some(several));
        let one = Qdiscs { kinds: kinds(&["tbf"]), is_default: false, children: 0 };
        assert_eq!(parse(3, messages(&dump)), Some(one));
        assert_eq!(parse(4, messages(&dump)), None);
    }
}
