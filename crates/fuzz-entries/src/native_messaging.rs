//! Messages of a browser's extension.

use longhaul_core::proto::native_messaging::{HostRequest, MAX_MESSAGE, encode, message_length};

/// Reads a length and a request; what is encoded has the length that is read of it.
pub fn native_messaging(bytes: &[u8]) {
    let Some((prefix, body)) = bytes.split_first_chunk() else { return };
    if let Ok(length) = message_length(*prefix) {
        assert!(length <= MAX_MESSAGE);
    }
    if HostRequest::parse(body).is_ok() {
        let message = encode(body).unwrap_or_default();
        let read = message.first_chunk().map(|prefix| message_length(*prefix));
        assert!(matches!(read, Some(Ok(length)) if length == body.len()));
    }
}
