//! HTTP/1.1 (RFC 9110, RFC 9112): heads, ranges, validators, bodies; one small file a concept.

mod byte_ranges;
mod conditional;
mod etag;
mod multipart;
mod reply_head;
mod request_head;
mod request_target;

pub use byte_ranges::{ByteRange, MAX_RANGES, RangeRequest};
pub use conditional::{Condition, Validators};
pub use etag::ETag;
pub use multipart::MultipartByteranges;
pub use reply_head::{ReplyHead, reason};
pub use request_head::{MAX_HEAD, MAX_HEADERS, MAX_TARGET, RequestBody, RequestError, RequestHead};
pub use request_target::{TargetError, TargetPath};
