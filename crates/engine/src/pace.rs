//! How fast a sender lets the kernel send.

use std::net::TcpStream;

use longhaul_core::event::Warning;
use longhaul_core::units::Rate;
use longhaul_sys::{send_options, tcp_info};

/// How a sender's connection is paced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pace {
    /// At what the path holds.
    #[default]
    Auto,
    /// As the congestion control does it.
    Off,
    /// At this rate at most.
    Fixed(Rate),
}

impl Pace {
    /// Begins to pace a connected `socket`; warns where the kernel does not obey.
    ///
    /// The kernel's word counts (`tcpi_pacing_rate`), not that the option was taken.
    pub fn begin(self, socket: &TcpStream) -> Option<Warning> {
        match self {
            // Left to the congestion control: this is where a controller gets the socket.
            Self::Auto | Self::Off => None,
            Self::Fixed(wanted) => {
                let set = send_options::set_max_pacing_rate(socket, wanted);
                let found = tcp_info::read(socket).ok().and_then(|info| info.pacing_rate());
                let obeys = set.is_ok() && found.is_none_or(|found| found <= wanted);
                (!obeys).then_some(Warning::NotPaced { wanted, found })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_kernel_obeys_a_fixed_rate() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(Pace::Off.begin(&socket), None);
        let rate = Rate::bits_per_sec(80_000_000);
        assert_eq!(Pace::Fixed(rate).begin(&socket), None);
        assert_eq!(tcp_info::read(&socket).unwrap().tcpi_max_pacing_rate(), Some(10_000_000));
    }
}
