//! Kernel settings of the emulated hosts. Each is set explicitly: a new namespace inherits some of
//! the machine's.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use longhaul_sys::process::write_all_even_if_killed;
use rustix::fs::FlockOperation;

use crate::error::LabError;
use crate::spec::PathSpec;

use super::HostSide;

const CONGESTION_CONTROL: &str = "net.ipv4.tcp_congestion_control";
const ECN: &str = "net.ipv4.tcp_ecn";
const ALLOWED_CONTROLS: &str = "net.ipv4.tcp_allowed_congestion_control";
const AVAILABLE_CONTROLS: &str = "net.ipv4.tcp_available_congestion_control";

fn path(name: &str) -> String {
    format!("/proc/sys/{}", name.replace('.', "/"))
}

/// Applies the settings of one host before its devices exist; the calling thread is in the host's
/// network namespace.
///
/// Returns the open congestion control setting for [`set_congestion`].
pub(super) fn apply(spec: &PathSpec, side: HostSide) -> Result<File, LabError> {
    let failed = |name: &'static str, value: &str, cause: io::Error| LabError::Setting {
        name,
        value: value.to_owned(),
        host: side.name(),
        cause,
        advice: String::new(),
    };
    // Connections must not inherit cached metrics.
    let further = [Some(("net.ipv4.tcp_no_metrics_save", "1")), spec.ends.ecn.then_some((ECN, "1"))];
    for (name, value) in spec.ends.hosts.settings().into_iter().chain(further.into_iter().flatten()) {
        fs::write(path(name), value).map_err(|cause| failed(name, value, cause))?;
    }
    // An idle link must carry no packets. Best effort: absent on a kernel without IPv6.
    for (name, value) in [("accept_ra", "0"), ("router_solicitations", "0"), ("addr_gen_mode", "1")] {
        if let Err(error) = fs::write(path(&format!("net.ipv6.conf.default.{name}")), value) {
            tracing::debug!("net.ipv6.conf.default.{name} stays as it is: {error}");
        }
    }
    let open = OpenOptions::new().read(true).write(true).open(path(CONGESTION_CONTROL));
    open.map_err(|cause| failed(CONGESTION_CONTROL, &spec.ends.congestion, cause))
}

/// Sets the default congestion control of each host; must run outside the hosts.
///
/// A namespace may use only the machine's allowed algorithms. A missing one is allowed temporarily
/// by a helper process that restores the list even if this process is killed.
pub(super) fn set_congestion(name: &str, hosts: &mut [(HostSide, File)]) -> Result<(), LabError> {
    let mut refused = Ok(());
    for (_, setting) in hosts.iter_mut() {
        refused = refused.and_then(|()| verify(setting, name).or_else(|_| rewrite(setting, name)));
    }
    if matches!(&refused, Err(error) if error.kind() == io::ErrorKind::PermissionDenied) {
        refused = allow_and_set(name, hosts);
    }
    for (side, setting) in hosts {
        let result = refused.as_ref().map_err(clone_error).and_then(|()| verify(setting, name));
        result.map_err(|cause| LabError::Setting {
            name: CONGESTION_CONTROL,
            value: name.to_owned(),
            host: side.name(),
            cause,
            advice: advice(name),
        })?;
    }
    Ok(())
}

fn allow_and_set(name: &str, hosts: &[(HostSide, File)]) -> io::Result<()> {
    let mut allowed = OpenOptions::new().read(true).write(true).open(path(ALLOWED_CONTROLS))?;
    let restore = OpenOptions::new().write(true).open(path(ALLOWED_CONTROLS))?;
    // Serialises concurrent labs, which would restore each other's list. Released on close.
    rustix::fs::flock(&allowed, FlockOperation::LockExclusive)?;
    let mut before = String::new();
    allowed.read_to_string(&mut before)?;
    let allowed = OpenOptions::new().write(true).open(path(ALLOWED_CONTROLS))?;
    let with_ours = format!("{} {name}", before.trim());
    let fresh: Vec<File> = hosts.iter().map(|(_, file)| file.try_clone()).collect::<io::Result<_>>()?;
    let mut steps = vec![(allowed.as_fd(), with_ours.as_bytes())];
    steps.extend(fresh.iter().map(|file| (file.as_fd(), name.as_bytes())));
    steps.push((restore.as_fd(), before.trim().as_bytes()));
    write_all_even_if_killed(&steps)
}

/// Writes at offset 0, the only offset that sysctl accepts.
fn rewrite(setting: &mut File, value: &str) -> io::Result<()> {
    io::Seek::rewind(setting)?;
    let result = setting.write_all(value.as_bytes());
    io::Seek::rewind(setting)?;
    result
}

fn verify(setting: &mut File, value: &str) -> io::Result<()> {
    let mut now = String::new();
    io::Seek::rewind(setting)?;
    setting.read_to_string(&mut now)?;
    if now.trim() == value { Ok(()) } else { Err(io::Error::other(format!("it stays '{}'", now.trim()))) }
}

fn clone_error(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error)
}

fn advice(name: &str) -> String {
    let read = |setting| fs::read_to_string(path(setting)).unwrap_or_default().trim().to_owned();
    let available = read(AVAILABLE_CONTROLS);
    if available.split(' ').any(|known| known == name) {
        format!(
            ". Allow it on this machine: sysctl -w {ALLOWED_CONTROLS}='{} {name}'",
            read(ALLOWED_CONTROLS)
        )
    } else {
        format!(". This kernel has: {available}; modprobe tcp_{name} may add it")
    }
}
