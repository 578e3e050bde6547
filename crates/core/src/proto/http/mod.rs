//! HTTP/1.1 (RFC 9110, RFC 9112): heads, ranges, validators, bodies.
//!
//! A client writes a `request` and parses a `response`; a server parses a `request_head` and writes
//! a `reply_head`.

mod challenge;
mod chunked;
mod conditional;
mod content_range;
mod digest;
mod etag;
mod header;
mod link;
mod multipart;
mod range_answer;
mod range_header;
mod reply_head;
mod request;
mod request_head;
mod request_target;
mod response;
mod retry_after;
mod suggested_name;
mod upload;
mod upload_ranges;
mod validator;

pub use challenge::challenge_schemes;
pub use chunked::ChunkedDecoder;
pub use conditional::{Condition, Validators};
pub use content_range::{ContentRange, Syntax};
pub use digest::parse_repr_digest;
pub use etag::ETag;
pub use header::{HeaderError, HeaderField};
pub use link::{DuplicateLink, Link};
pub use multipart::MultipartByteranges;
pub use range_answer::{RangeAnswer, UNASKED};
pub use range_header::{MAX_RANGES, RangeHeader};
pub use reply_head::{ReplyHead, reason};
pub use request::{FileRange, RangeRequest, Request, RequestMethod, UploadPart, UploadRange};
pub use request_head::{MAX_HEADERS, MAX_TARGET, RequestBody, RequestError, RequestHead};
pub use request_target::{TargetError, TargetPath};
pub use response::{Framing, MAX_RESPONSE_HEAD, ResponseHead};
pub use retry_after::retry_after;
pub use suggested_name::FileName;
pub use upload::{
    PARTIAL_UPLOAD, REPR_DIGEST, UPLOAD_COMPLETE, UPLOAD_LENGTH, UPLOAD_MTIME, UPLOAD_OFFSET, UploadId,
    WANT_REPR_DIGEST, parse_upload_bool, parse_upload_bytes, upload_bool,
};
pub use upload_ranges::{
    UPLOAD_LIMIT, UPLOAD_RANGES, held_ranges, parse_concurrent_ranges, parse_held_ranges, upload_limit,
};
pub use validator::Validator;

use crate::units::Bytes;

/// The largest accepted head of a request; real heads rarely reach 4 KiB.
pub const MAX_HEAD: Bytes = Bytes::kib(64);
