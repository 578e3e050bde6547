//! Requests from lists of URLs, and from metalinks.

use longhaul_core::checksum::Checksum;
use longhaul_core::proto::metalink::{Metalink, MetalinkFile, Pieces};
use longhaul_core::units::Bytes;
use serde::{Deserialize, Serialize};

use super::{MAX_SOURCES, TargetFile, TransferRequest, ZonedUrl, invalid};
use crate::error::QueueError;

/// The file's properties in a metalink, except URLs and digest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetalinkFacts {
    /// The file's size.
    pub size: Option<Bytes>,
    /// The length of its pieces.
    pub piece_length: Option<Bytes>,
    /// The digests of the pieces.
    pub pieces: Vec<Checksum>,
}

impl MetalinkFacts {
    pub(super) fn pieces(&self) -> Option<Pieces> {
        let algorithm = self.pieces.first()?.algorithm;
        Some(Pieces { length: self.piece_length?, algorithm, digests: self.pieces.clone() })
    }
}

/// Creates a request for each URL of a text, one per line; skips empty lines and lines that start
/// with #.
///
/// # Errors
/// [`QueueError::Invalid`] with the number of the line.
pub fn of_text(text: &str) -> Result<Vec<TransferRequest>, QueueError> {
    let lines =
        text.lines().map(str::trim).zip(1..).filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    let requests: Result<Vec<_>, _> = lines
        .map(|(line, number)| {
            let url = ZonedUrl::parse(line).map_err(|error| invalid(format!("line {number}: {error}")))?;
            Ok(TransferRequest::of_urls(vec![url.to_string()]))
        })
        .collect();
    requests.and_then(
        |requests| if requests.is_empty() { Err(invalid("there is no URL in it")) } else { Ok(requests) },
    )
}

/// Creates a request for each file of a metalink.
///
/// # Errors
/// [`QueueError::Invalid`].
pub fn of_metalink(document: &[u8]) -> Result<Vec<TransferRequest>, QueueError> {
    let metalink =
        Metalink::parse(document).map_err(|error| invalid(format!("cannot use the metalink: {error}")))?;
    let of_file = |file: MetalinkFile| {
        let usable = file.sources.iter().filter_map(|source| ZonedUrl::parse(&source.url).ok());
        let urls: Vec<String> = usable.take(MAX_SOURCES).map(|url| url.to_string()).collect();
        if urls.is_empty() {
            return Err(invalid(format!("{} in the metalink has no URL that can be fetched", file.name)));
        }
        let pieces = file.pieces.as_ref();
        Ok(TransferRequest {
            target: TargetFile {
                name: file.name.components().last().map(|name| name.to_string()),
                checksum: file.best_checksum().map(ToString::to_string),
                ..TargetFile::default()
            },
            metalink: Some(MetalinkFacts {
                size: file.size,
                piece_length: pieces.map(|pieces| pieces.length),
                pieces: file.pieces.as_ref().map(|pieces| pieces.digests.clone()).unwrap_or_default(),
            }),
            ..TransferRequest::of_urls(urls)
        })
    };
    metalink.files.into_iter().map(of_file).collect()
}
