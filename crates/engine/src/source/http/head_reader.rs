//! Reading a response's head off a connection, whatever comes.

use longhaul_core::proto::http::{MAX_HEAD, ResponseHead};
use longhaul_core::units::Bytes;

use super::error::HttpError;
use super::inbox::Inbox;
use super::safe_url::UrlAndPeer;
use super::tls;
use super::transport::{Received, Transport};
use super::wait::Wait;

/// How much is received at once; what lies behind the head is copied once more, so not much.
const PIECE: usize = 4096;
/// How much of an answer that is not HTTP is shown.
const SHOWN: usize = 32;

/// Reads the next head; bytes behind it stay in `inbox`.
pub(super) fn read_head(
    transport: &mut Transport,
    inbox: &mut Inbox,
    place: &UrlAndPeer,
    wait: &Wait<'_>,
) -> Result<ResponseHead, HttpError> {
    let mut searched = 0;
    loop {
        let data = inbox.data();
        check_start(data, place)?;
        if let Some(end) = ResponseHead::end(data, searched).filter(|end| *end <= MAX_HEAD.as_usize()) {
            let head = ResponseHead::parse(&data[..end]);
            inbox.consume(end);
            return head.map_err(|source| HttpError::Head { place: place.clone(), source });
        }
        searched = data.len();
        if searched >= MAX_HEAD.as_usize() {
            return Err(HttpError::HeadTooLong { place: place.clone(), limit: MAX_HEAD });
        }
        wait.check(place, "the head of its answer")?;
        match transport.receive(inbox.room(PIECE)) {
            Ok(Received::Data(n)) => inbox.received(n),
            Ok(Received::Idle) => {}
            Ok(Received::End { .. }) => {
                return Err(HttpError::ClosedBeforeHead {
                    place: place.clone(),
                    got: Bytes::new(searched as u64),
                });
            }
            Err(error) => return Err(tls::receive_error(error, place)),
        }
    }
}

/// Fails as soon as the answer cannot become HTTP/1 any more.
fn check_start(data: &[u8], place: &UrlAndPeer) -> Result<(), HttpError> {
    const START: &[u8] = b"HTTP/1.";
    let n = data.len().min(START.len());
    if data[..n] == START[..n] {
        return Ok(());
    }
    let first = data[..data.len().min(SHOWN)].escape_ascii().to_string();
    Err(HttpError::NotHttp { place: place.clone(), first, hint: recognise(data) })
}

/// Recognises other protocols by their first bytes.
fn recognise(data: &[u8]) -> &'static str {
    match data {
        // A TLS record: alert or handshake, version 3.x.
        [0x15 | 0x16, 0x03, ..] => ": the server speaks TLS on this port; try https://",
        // A SETTINGS frame on stream 0, with which an HTTP/2 server begins.
        [_, _, _, 0x04, _, 0, 0, 0, 0, ..] => {
            ": the server speaks only HTTP/2 on this port, which is not supported"
        }
        [b'P', b'R', b'I', b' ', ..] | [b'H', b'T', b'T', b'P', b'/', b'2', ..] => {
            ": the server speaks only HTTP/2 on this port, which is not supported"
        }
        [b'S', b'S', b'H', b'-', ..] => ": this is an SSH server; check the port",
        [b'2', b'2', b'0', ..] => ": this looks like an FTP or mail server; check the port",
        _ => "",
    }
}
