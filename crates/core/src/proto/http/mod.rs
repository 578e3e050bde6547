//! HTTP/1.1 (RFC 9110, RFC 9112): heads, ranges, validators, bodies; one small file a concept.

mod etag;

pub use etag::ETag;
