//! A client's path memory, on a path long enough for it to matter.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use longhaul_core::units::{Bytes, Rate};
use longhaul_lab::Host;

use super::long_path::{LongPath, connect};

/// The minimum relevant rate: half of it is eleven segments per RTT, one more than the kernel's initial window.
const HELD: Rate = Rate::bits_per_sec(1_300_000);
/// The measured time of a reply.
const START: Duration = Duration::from_secs(1);

/// Requests `/file` with a remembered rate for a path with this RTT in seconds; returns the bytes received within
/// [`START`] after the first byte.
fn start(host: &Host, server: SocketAddr, rtt: f64) -> Bytes {
    let memory = format!("held={};rtt={rtt}", HELD.as_bits_per_sec());
    let fetch = move || {
        let mut stream = connect(server);
        write!(stream, "GET /file HTTP/1.1\r\nHost: h\r\nLonghaul-Pace: auto;{memory}\r\n\r\n").unwrap();
        let mut buffer = vec![0; 1 << 20];
        let mut got = stream.read(&mut buffer).unwrap();
        let end = Instant::now() + START;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Bytes::new(got as u64);
            }
            stream.set_read_timeout(Some(left)).unwrap();
            match stream.read(&mut buffer) {
                Ok(read) => got += read,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
            }
        }
    };
    host.run(fetch).unwrap()
}

#[test]
fn a_reply_begins_with_the_pace_that_its_client_remembers_of_this_path() {
    let Some(path) = LongPath::with_file(16 << 20) else { return };
    // Each from a fresh server: a server's own memory would take precedence.
    let [known, other] = [0.2, 0.05].map(|rtt| {
        let _server = path.serve(&[]);
        start(&path.client(), path.addresses()[0], rtt)
    });
    // The pace rises from half of the rate up to it.
    let most = HELD.bytes_in(START);
    assert!(known <= most, "{known}, from a path that held {most} in that time");
    // Slow start, after at least four RTTs.
    assert!(
        other > HELD.scaled(1.5).bytes_in(START),
        "{other} from a path that is another by its RTT, {known} from the one that is known"
    );
}
