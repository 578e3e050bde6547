//! Requests for the small documents of a measurement endpoint.

use std::fmt::Display;
use std::time::{Duration, Instant};

use longhaul_core::failure::{Failure, FailureKind};
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
    serde_json::from_slice(&body).map_err(|error| unusable(url, &error))
}

/// Creates the error of an endpoint whose answer is invalid.
pub(super) fn unusable(url: &Url, why: &dyn Display) -> ProbeError {
    let message = format!(
        "cannot use the measurement endpoint of {url}: {why}; its version of longhaul may be another"
    );
    Failure::new(FailureKind::Protocol, message).into()
}

/// Returns the URL of `path` on the server of `url`.
pub(super) fn endpoint_url(url: &Url, path: &str) -> Url {
    let mut url = url.clone();
    url.set_path(path);
    url.set_query(None);
    url
}
