//! Settings of this host by their names, wherever they are kept.

use std::io;

use longhaul_core::host_check::{GOVERNOR, RINGS};
use longhaul_sys::link;
use rustix::io::Errno;

use super::governor::Governors;
pub(super) use super::kernel_setting::is_same;
use super::{device_setting, kernel_setting};

/// The parsed name of a setting, by what keeps its value.
enum SettingName<'a> {
    Kernel(&'a str),
    Device { device: &'a str, property: &'a str },
    Governor,
}

impl<'a> SettingName<'a> {
    fn parse(name: &'a str) -> Self {
        match name.split_once(' ') {
            _ if name == GOVERNOR => Self::Governor,
            Some((device, property)) => Self::Device { device, property },
            None => Self::Kernel(name),
        }
    }
}

/// Reads a setting; its values are separated by one space.
pub(super) fn read(name: &str) -> io::Result<String> {
    match SettingName::parse(name) {
        SettingName::Kernel(name) => kernel_setting::read(name),
        SettingName::Device { device, property } => device_setting::read(device, property),
        SettingName::Governor => Governors::of_this_host().read(),
    }
}

/// Says whether a setting can be changed and restored, without changing it.
pub(super) fn check_writable(name: &str) -> io::Result<()> {
    match SettingName::parse(name) {
        SettingName::Kernel(name) => kernel_setting::check_writable(name),
        SettingName::Device { device, property } => device_setting::check_writable(device, property),
        SettingName::Governor => Governors::of_this_host().check_writable(),
    }
}

/// Writes a setting, and reads it again: an error where the kernel took it in part. A driver may
/// round sizes up; what it made of them is returned.
pub(super) fn write(name: &str, value: &str) -> io::Result<String> {
    match SettingName::parse(name) {
        SettingName::Kernel(name) => kernel_setting::write(name, value)?,
        SettingName::Device { device, property } => device_setting::write(device, property, value)?,
        SettingName::Governor => Governors::of_this_host().write(value)?,
    }
    let now = read(name)?;
    if is_taken(name, &now, value) {
        Ok(now)
    } else {
        Err(io::Error::other(format!("the kernel made it '{now}'")))
    }
}

/// Says whether a setting is one of a device that does not exist.
pub(super) fn is_gone(name: &str) -> bool {
    let SettingName::Device { device, .. } = SettingName::parse(name) else { return false };
    link::named(device).is_err_and(|error| Errno::from_io_error(&error) == Some(Errno::NODEV))
}

/// Says whether a setting is the sizes of a device's rings.
pub(super) fn is_rings(name: &str) -> bool {
    matches!(SettingName::parse(name), SettingName::Device { property: RINGS, .. })
}

/// Returns whether a setting has the value that was written, which a driver may have rounded up.
pub(super) fn is_taken(name: &str, now: &str, wanted: &str) -> bool {
    match SettingName::parse(name) {
        SettingName::Device { property, .. } => device_setting::is_taken(property, now, wanted),
        SettingName::Kernel(_) | SettingName::Governor => is_same(name, now, wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names come from a file of the user's, too.
    #[test]
    fn names_of_no_setting_are_refused() {
        for name in ["", "kernel.hostname", "/etc/passwd", "lo", "none0 qdisc", "lo none", "lo qdisc of", " "]
        {
            assert!(read(name).is_err() && write(name, "1").is_err(), "{name}");
        }
        assert_eq!(read("lo qdisc").unwrap(), "noqueue");
    }
}
