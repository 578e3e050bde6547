//! Requests for the small documents of a measurement endpoint.

use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use url::Url;

use crate::cancel::Cancel;
use crate::source::http::{Client, Read};

use super::error::ProbeError;

/// The most bytes of a document of the endpoint.
const LARGEST_ANSWER: usize = 64 << 10;

/// Requests a small JSON document.
pub(super) fn request<T: DeserializeOwned>(client: &Client, url: &Url) -> Result<T, ProbeError> {
    let mut connection = client.open(url, None, &Cancel::new())?.connection;
    let mut body = Vec::new();
    let mut buffer = [0; 4096];
    let until = Instant::now() + Duration::from_secs(5);
    while body.len() < LARGEST_ANSWER && Instant::now() < until {
        match connection.read_body(&mut buffer)? {
            Read::Data(more) => body.extend_from_slice(&buffer[..more]),
            Read::Idle => {}
            Read::End => break,
        }
    }
    client.keep(connection);
    serde_json::from_slice(&body)
        .map_err(|error| ProbeError::Endpoint { at: url.to_string(), why: error.to_string() })
}

/// Returns the URL of `path` on the server of `url`.
pub(super) fn endpoint_url(url: &Url, path: &str) -> Url {
    let mut url = url.clone();
    url.set_path(path);
    url.set_query(None);
    url
}
