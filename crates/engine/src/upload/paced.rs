//! How fast an upload's connections let the kernel send.

use std::net::TcpStream;

use longhaul_core::event::Warning;
use longhaul_core::pace::Pace;
use longhaul_core::units::Rate;
use longhaul_sys::{host, tcp_info};
use socket2::SockRef;

use super::error::UploadError;
use super::request::PutRequest;
use crate::pacing::{Paced, Pacing, congestion_at_first};

/// What paces each connection in turn.
pub(super) struct Pacemaker {
    pace: Pace,
    /// The congestion control that a connection has for good, where that is not the one it begins with.
    congestion: Option<String>,
    pacing: Pacing,
}

impl Pacemaker {
    pub(super) fn new(request: &PutRequest) -> Result<Self, UploadError> {
        let by_default = || host::congestion_control().filter(|name| congestion_at_first(name) != name);
        let congestion =
            request.congestion.clone().or_else(|| (request.pace == Pace::Auto).then(by_default).flatten());
        let pacing = Pacing::start().map_err(|error| UploadError::Thread("pacing", error))?;
        Ok(Self { pace: request.pace, congestion, pacing })
    }

    /// Paces a connected `socket`; warns where the kernel does not obey.
    ///
    /// What is returned rests until bytes of the file are sent.
    pub(super) fn take(&self, socket: &TcpStream) -> Result<(Option<Paced>, Option<Warning>), UploadError> {
        if let Some(name) = &self.congestion {
            let set = |name: &str| {
                SockRef::from(socket)
                    .set_tcp_congestion(name.as_bytes())
                    .map_err(|source| UploadError::Congestion { name: name.to_owned(), source })
            };
            // The user's word first: one that the kernel does not know is refused at once.
            set(name)?;
            if self.pace == Pace::Auto {
                set(congestion_at_first(name))?;
            }
        }
        let taken = self.pacing.take(socket, self.pace, self.congestion.as_deref());
        let (paced, refused) = taken.map_or((None, true), |paced| (paced, false));
        if let Some(paced) = &paced {
            paced.rest();
        }
        let warning = match self.pace {
            Pace::Rate(wanted) => not_paced(socket, wanted, refused),
            Pace::Auto | Pace::Off => None,
        };
        Ok((paced, warning))
    }
}

/// Compares what was asked for with the kernel's own word (`tcpi_pacing_rate`).
fn not_paced(socket: &TcpStream, wanted: Rate, refused: bool) -> Option<Warning> {
    let found = tcp_info::read(socket).ok().and_then(|info| info.pacing_rate());
    (refused || found.is_some_and(|found| found > wanted)).then_some(Warning::NotPaced { wanted, found })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_kernel_obeys_and_whoever_does_not_is_told_of() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (rate, lower) = (Rate::bits_per_sec(80_000_000), Rate::bits_per_sec(8_000));
        let pacing = Pacing::start().unwrap();
        let of = |pace| Pacemaker { pace, congestion: None, pacing: Pacing::start().unwrap() };
        assert!(matches!(of(Pace::Rate(rate)).take(&socket), Ok((None, None))));
        assert_eq!(tcp_info::read(&socket).unwrap().tcpi_max_pacing_rate(), Some(10_000_000));
        assert_eq!(
            not_paced(&socket, lower, false),
            Some(Warning::NotPaced { wanted: lower, found: Some(rate) })
        );
        assert!(matches!(of(Pace::Auto).take(&socket), Ok((Some(_), None))));
        let unknown = Pacemaker { pace: Pace::Off, congestion: Some("no-such".into()), pacing };
        assert!(matches!(unknown.take(&socket), Err(UploadError::Congestion { .. })));
    }
}
