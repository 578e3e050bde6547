//! HTTP/1.1 (RFC 9110, RFC 9112): heads, ranges, validators, bodies; one small file a concept.

mod challenge;
mod chunked;
mod content_range;
mod disposition;
mod etag;
mod header;
mod range_answer;
mod request;
mod response;
mod retry_after;
mod validator;

pub use challenge::challenge_schemes;
pub use chunked::{ChunkedDecoder, ChunkedError};
pub use content_range::ContentRange;
pub use disposition::FileName;
pub use etag::ETag;
pub use header::{HeaderError, HeaderField};
pub use range_answer::{RangeAnswer, RangeError};
pub use request::{GetRequest, RangeRequest};
pub use response::{Framing, HeadError, MAX_HEAD, ResponseHead};
pub use retry_after::retry_after;
pub use validator::Validator;
