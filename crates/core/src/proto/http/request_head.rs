//! Parser of a request's head (RFC 9112, sections 2 to 6).

use thiserror::Error;

use super::MAX_HEAD;
use crate::proto::number;
use crate::units::Bytes;

/// The longest accepted request target; a longer one is answered with 414.
pub const MAX_TARGET: Bytes = Bytes::kib(8);
/// The largest accepted number of header lines; more are answered with 431.
pub const MAX_HEADERS: usize = 100;

/// The reason why a request is refused; [`RequestError::status`] returns the status code of the
/// answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RequestError {
    /// The bytes are not an HTTP request.
    #[error("the request is not HTTP: {0}")]
    Malformed(&'static str),
    /// The version is not HTTP/1.x.
    #[error("only HTTP/1.0 and HTTP/1.1 are supported")]
    Version,
    /// The target is longer than [`MAX_TARGET`].
    #[error("the request's target is longer than {MAX_TARGET}")]
    TargetTooLong,
    /// The head is longer than [`MAX_HEAD`], or has more than [`MAX_HEADERS`] lines.
    #[error("the request's head has more than {MAX_HEAD} or {MAX_HEADERS} lines")]
    HeadTooLarge,
    /// The body is framed by a transfer coding other than "chunked".
    #[error("the request's transfer coding is not supported")]
    TransferCoding,
}

impl RequestError {
    /// Returns the status code that answers the request.
    pub const fn status(&self) -> u16 {
        match self {
            Self::Malformed(_) => 400,
            Self::TargetTooLong => 414,
            Self::HeadTooLarge => 431,
            Self::TransferCoding => 501,
            Self::Version => 505,
        }
    }
}

/// The framing of a request's body (RFC 9112, section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestBody {
    /// No body follows the head.
    None,
    /// A body of this length follows, at least one byte.
    Length(Bytes),
    /// Chunks follow.
    Chunked,
}

/// A request's head: method, target, version, header lines in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    method: String,
    target: String,
    http_1_1: bool,
    headers: Vec<(String, String)>,
}

impl RequestHead {
    /// Parses a head at the start of `input`; returns the head and its length, or `None` if more
    /// bytes are needed.
    ///
    /// Bytes outside UTF-8 in a value become U+FFFD. Only heads with an unambiguous framing of the
    /// body and a valid `Host` are accepted.
    pub fn parse(input: &[u8]) -> Result<Option<(Self, usize)>, RequestError> {
        let mut lines = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut lines);
        let parsed = request.parse(input);
        if request.path.is_some_and(|target| target.len() > MAX_TARGET.as_usize()) {
            return Err(RequestError::TargetTooLong);
        }
        let length = match parsed {
            Ok(httparse::Status::Complete(length)) if length <= MAX_HEAD.as_usize() => length,
            Ok(httparse::Status::Complete(_)) => return Err(RequestError::HeadTooLarge),
            Ok(httparse::Status::Partial) => return still_partial(&request, input),
            Err(error) => {
                let known = as_http_1_1(input).filter(|_| error == httparse::Error::Version);
                return known.map_or(Err(refuse(error)), |known| Self::parse(&known));
            }
        };
        let head = Self {
            method: request.method.unwrap_or_default().to_owned(),
            target: request.path.unwrap_or_default().to_owned(),
            http_1_1: request.version == Some(1),
            headers: request
                .headers
                .iter()
                .map(|line| (line.name.to_owned(), String::from_utf8_lossy(line.value).into_owned()))
                .collect(),
        };
        head.check()?;
        Ok(Some((head, length)))
    }

    /// Returns the case-sensitive method, such as "GET" (RFC 9110, section 9.1).
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Returns the target as received.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns the value of the first field `name`, case-insensitive.
    pub fn header(&self, name: &str) -> Option<&str> {
        let line = self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
        line.map(|(_, value)| value.as_str())
    }

    /// Returns the values of all fields `name` as one list, joined by commas (RFC 9110, section
    /// 5.3).
    pub fn list(&self, name: &str) -> Option<String> {
        let values: Vec<&str> = self.all(name).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    /// Returns whether the field `name` occurs more than once.
    pub fn repeats(&self, name: &str) -> bool {
        self.all(name).nth(1).is_some()
    }

    /// Returns whether another request may follow on the connection (RFC 9112, section 9.3).
    pub fn keeps_alive(&self) -> bool {
        let options = self.list("connection").unwrap_or_default();
        let has = |option: &str| options.split(',').any(|o| o.trim().eq_ignore_ascii_case(option));
        !has("close") && (self.http_1_1 || has("keep-alive"))
    }

    /// Returns whether the version is HTTP/1.1, not 1.0.
    pub fn is_http_1_1(&self) -> bool {
        self.http_1_1
    }

    /// Returns the framing of the body.
    pub fn body(&self) -> RequestBody {
        if self.header("transfer-encoding").is_some() {
            return RequestBody::Chunked;
        }
        match self.header("content-length").and_then(number) {
            None | Some(0) => RequestBody::None,
            Some(length) => RequestBody::Length(Bytes::new(length)),
        }
    }

    fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str())
    }

    /// Refuses heads whose host or framing is ambiguous (RFC 9112), because they permit request
    /// smuggling.
    fn check(&self) -> Result<(), RequestError> {
        let hosts = self.all("host").count();
        if hosts > 1 || (hosts == 0 && self.http_1_1) {
            return Err(RequestError::Malformed("HTTP/1.1 needs one Host header"));
        }
        let mut lengths = self.all("content-length");
        let length = lengths.next();
        if lengths.next().is_some() || length.is_some_and(|text| number::<u64>(text).is_none()) {
            return Err(RequestError::Malformed("Content-Length must be one decimal number"));
        }
        match self.list("transfer-encoding") {
            None => Ok(()),
            Some(_) if length.is_some() || !self.http_1_1 => {
                Err(RequestError::Malformed("the body's length is stated twice or unclear"))
            }
            Some(coding) if coding.eq_ignore_ascii_case("chunked") => Ok(()),
            Some(_) => Err(RequestError::TransferCoding),
        }
    }
}

/// Requests more bytes of an incomplete head, unless it already exceeds a limit.
fn still_partial(
    request: &httparse::Request<'_, '_>,
    input: &[u8],
) -> Result<Option<(RequestHead, usize)>, RequestError> {
    let in_target = request.path.is_none() && !input.contains(&b'\n');
    if in_target && input.len() > MAX_TARGET.as_usize() + 32 {
        return Err(RequestError::TargetTooLong);
    }
    if input.len() >= MAX_HEAD.as_usize() { Err(RequestError::HeadTooLarge) } else { Ok(None) }
}

/// Rewrites the version of a head of a later HTTP/1.x to HTTP/1.1, as which it is processed (RFC
/// 9110, section 2.5).
fn as_http_1_1(input: &[u8]) -> Option<Vec<u8>> {
    // Empty lines may precede it (RFC 9112, section 2.2).
    let start = input.iter().position(|byte| !matches!(byte, b'\r' | b'\n'))?;
    // The end of the line may not have arrived.
    let end =
        input[start..].iter().position(|byte| *byte == b'\n').map_or(input.len(), |length| start + length);
    let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
    let (minor, before) = line.split_last()?;
    if !before.ends_with(b" HTTP/1.") || !matches!(minor, b'2'..=b'9') {
        return None;
    }
    let mut known = input.to_vec();
    known[before.len()] = b'1';
    Some(known)
}

fn refuse(error: httparse::Error) -> RequestError {
    use httparse::Error as E;
    match error {
        E::TooManyHeaders => RequestError::HeadTooLarge,
        E::Version => RequestError::Version,
        E::HeaderName => RequestError::Malformed("a header's name has an illegal character"),
        E::HeaderValue => RequestError::Malformed("a header's value has an illegal character"),
        E::NewLine => RequestError::Malformed("a line does not end as it must"),
        E::Token | E::Status => RequestError::Malformed("the request line has an illegal character"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<(RequestHead, usize)>, RequestError> {
        RequestHead::parse(text.as_bytes())
    }

    fn head(text: &str) -> RequestHead {
        read(text).unwrap().unwrap().0
    }

    #[test]
    fn version_and_connection_option_decide_what_is_kept_alive() {
        let text = "GET /f HTTP/1.2\r\nHost: h\r\n\r\nrest";
        let (found, length) = read(text).unwrap().unwrap();
        assert_eq!((found.is_http_1_1(), found.keeps_alive(), found.target()), (true, true, "/f"));
        assert_eq!(&text[length..], "rest");
        for partial in ["GET /f HTTP/1.2", "GET /f HTTP/1.2\r\n", "GET /f HTTP/1.9\r\nHost: h\r\n"] {
            assert_eq!(read(partial), Ok(None), "{partial}");
        }
        for other in ["HTTP/2.0", "HTTP/1.x", "HTTP/1.12", "HTTP/0.9", "http/1.2"] {
            assert!(read(&format!("GET /f {other}\r\nHost: h\r\n\r\n")).is_err(), "{other}");
        }
        assert!(!head("GET / HTTP/1.1\r\nHost: h\r\nConnection: x, Close\r\n\r\n").keeps_alive());
        assert!(!head("GET / HTTP/1.0\r\n\r\n").keeps_alive());
        assert!(head("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").keeps_alive());
    }

    #[test]
    fn head_is_parsed_with_its_framing_and_bytes_after_it_remain() {
        let text = "GET /a%20b?c HTTP/1.1\r\nHost: h\r\nRange: bytes=0-1\r\nrange: bytes=4-\r\n\r\nGET /";
        let (get, length) = read(text).unwrap().unwrap();
        assert_eq!((get.method(), get.target(), length), ("GET", "/a%20b?c", text.len() - 5));
        assert_eq!(get.header("RANGE"), Some("bytes=0-1"));
        assert_eq!(get.list("range").as_deref(), Some("bytes=0-1, bytes=4-"));
        assert!(get.keeps_alive() && get.body() == RequestBody::None);
        (0..length).for_each(|cut| assert_eq!(read(&text[..cut]), Ok(None), "{cut}"));
        let chunked = head("PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n");
        assert_eq!(chunked.body(), RequestBody::Chunked);
        let sized = head("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 12\r\n\r\n");
        assert_eq!(sized.body(), RequestBody::Length(Bytes::new(12)));
    }

    #[test]
    fn refused_requests_have_the_right_status() {
        let long_target = format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "a".repeat(8200));
        let endless_target = format!("GET /{}", "a".repeat(9000));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(101));
        let big = format!("GET / HTTP/1.1\r\nHost: h\r\na: {}", "b".repeat(64 << 10));
        for (text, status) in [
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            ("\u{1}\u{2}\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
            ("GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505),
            (&long_target, 414),
            (&endless_target, 414),
            (&many, 431),
            (&big, 431),
        ] {
            assert_eq!(read(text).unwrap_err().status(), status, "{text:.60}");
        }
    }
}
