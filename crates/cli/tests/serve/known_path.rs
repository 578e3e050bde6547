//! What a client remembers of a path, where that is long enough for it to count.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use longhaul_core::units::{Bytes, Rate};
use longhaul_lab::Host;

use crate::long_path::{LongPath, connect};

/// As slow as may count: half of it is eleven segments a round trip, one more than the kernel begins with.
const HELD: Rate = Rate::bits_per_sec(1_300_000);
/// How much of a reply is looked at.
const START: Duration = Duration::from_secs(1);

/// Asks for `/file`, remembering that a path of this RTT, in seconds, held so much; returns how much came in the time after the first byte.
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
    // Each from a server that knows nothing itself: what that has seen would come first.
    let [known, other] = [0.2, 0.05].map(|rtt| {
        let _server = path.serve(&[]);
        start(&path.client(), path.addresses()[0], rtt)
    });
    // The pace climbs from half of the rate, and to it.
    let most = HELD.bytes_in(START);
    assert!(known <= most, "{known}, from a path that held {most} in that time");
    // Slow start, which has had four round trips at least.
    assert!(
        other > HELD.scaled(1.5).bytes_in(START),
        "{other} from a path that is another by its RTT, {known} from the one that is known"
    );
}
