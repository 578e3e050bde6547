//! The head of a response, parsed by a client.

mod lenient;

use std::time::{Duration, SystemTime};

use percent_encoding::AsciiSet;

use super::digest::parse_digest;
use super::{
    ContentRange, DuplicateLink, ETag, FileName, Link, PARTIAL_UPLOAD, REPR_DIGEST, Syntax, Validator,
    challenge_schemes, parse_repr_digest, retry_after,
};
use crate::checksum::Checksum;
use crate::proto::{Malformed, number};
use crate::units::Bytes;

/// The largest accepted head of a response: some servers set a few hundred cookies.
pub const MAX_RESPONSE_HEAD: Bytes = Bytes::kib(256);
/// The number of fields for which the strict parser has room; few heads have 50.
const USUAL_FIELDS: usize = 128;

/// The end of a response's body (RFC 9112, section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// The body has this length; zero if there is no body.
    Length(Bytes),
    /// The chunked coding marks the end.
    Chunked,
    /// The body ends with the connection.
    UntilClose,
}

/// The head of a response: status and fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    status: u16,
    reason: String,
    minor_version: u8,
    fields: Vec<(String, Vec<u8>)>,
    /// Whether the head was malformed, in lines that do not matter: nothing may follow its body on
    /// the connection.
    is_malformed: bool,
}

impl ResponseHead {
    /// Returns the index after the empty line that ends a head in `bytes`; the first `searched`
    /// bytes do not contain it.
    pub fn end(bytes: &[u8], searched: usize) -> Option<usize> {
        let from = searched.saturating_sub(3);
        let ends = |at: usize| {
            let before = &bytes[from..=at];
            bytes[at] == b'\n'
                && (before.ends_with(b"\n\r\n") || before.ends_with(b"\n\n") || before.ends_with(b"\n\r\r\n"))
        };
        (from..bytes.len()).find(|at| ends(*at)).map(|at| at + 1)
    }

    /// Parses a whole head, including the empty line.
    ///
    /// As browsers do, skips lines that are not fields, unless they may state the end of the body.
    ///
    /// # Errors
    /// [`Malformed`] if the text is not HTTP, or a malformed line may state the end of the body.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = [httparse::EMPTY_HEADER; USUAL_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        match response.parse(bytes) {
            Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
            Ok(httparse::Status::Complete(_)) => return Err(syntax("bytes follow its empty line")),
            Ok(httparse::Status::Partial) => return Err(syntax("it ends too early")),
            Err(_) => return Self::parse_leniently(bytes),
        }
        let own = |h: &httparse::Header<'_>| (h.name.to_owned(), h.value.to_vec());
        Ok(Self {
            status: response.code.unwrap_or_default(),
            reason: response.reason.unwrap_or_default().to_owned(),
            minor_version: response.version.unwrap_or_default(),
            fields: response.headers.iter().map(own).collect(),
            is_malformed: false,
        })
    }

    /// Returns the status code.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the reason phrase, which may be empty and has no defined meaning.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns all values of a field, in order, as bytes.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.fields.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_slice())
    }

    /// Returns the first value of a field, as bytes.
    fn first(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_slice())
    }

    /// Returns the first value of a field if it is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.first(name).and_then(|v| std::str::from_utf8(v).ok()).map(trim_text)
    }

    /// Returns the value of a field that must not be repeated; `None` if it is repeated with
    /// another value, or is not text.
    ///
    /// Of different values, caches and proxies use the first, the last or both, so none is
    /// reliable.
    fn single(&self, name: &str) -> Option<&str> {
        let mut values = self.all(name);
        let first = values.next()?;
        values.all(|value| value == first).then_some(())?;
        std::str::from_utf8(first).ok().map(trim_text)
    }

    /// Lists the comma-separated members of all values of a field, in lower case.
    fn members(&self, name: &str) -> Vec<String> {
        let values = self.all(name).map(|v| String::from_utf8_lossy(v).to_ascii_lowercase());
        values
            .flat_map(|v| v.split(',').map(|m| trim_text(m).to_owned()).collect::<Vec<_>>())
            .filter(|m| !m.is_empty())
            .collect()
    }

    /// Returns the framing of the body of this response to a GET (RFC 9112, section 6.3).
    ///
    /// # Errors
    /// [`Malformed`] if the fields contradict each other or specify a coding that was not
    /// requested.
    pub fn framing(&self) -> Result<Framing, Malformed> {
        if matches!(self.status, 100..=199 | 204 | 304) {
            return Ok(Framing::Length(Bytes::ZERO));
        }
        let length = self.stated_length()?;
        if self.first("transfer-encoding").is_none() {
            return Ok(length.map_or(Framing::UntilClose, Framing::Length));
        }
        let mut codings = self.members("transfer-encoding");
        codings.drain(..codings.iter().position(|coding| !is_identity(coding)).unwrap_or(codings.len()));
        // A proxy may repeat the field; nothing is chunked twice (RFC 9112, section 6.1).
        codings.dedup_by(|next, coding| *coding == "chunked" && next == coding);
        match codings.as_slice() {
            [] => Ok(length.map_or(Framing::UntilClose, Framing::Length)),
            // The coding overrides a length, which a proxy may have left there.
            [coding] if coding == "chunked" => Ok(Framing::Chunked),
            _ => {
                let codings = codings.join(", ");
                let codings = codings.escape_debug();
                let why =
                    format!("the body is in the transfer coding '{codings}'; only chunked is supported");
                Err(Malformed::new(why))
            }
        }
    }

    /// Parses Content-Length: one number, which may be repeated (RFC 9112, section 6.3).
    fn stated_length(&self) -> Result<Option<Bytes>, Malformed> {
        if self.first("content-length").is_none() {
            return Ok(None);
        }
        let lengths = self.members("content-length");
        let length =
            lengths.first().filter(|first| lengths.iter().all(|l| l == *first)).and_then(|l| length_of(l));
        length.map(|length| Some(Bytes::new(length))).ok_or_else(|| {
            let lengths = lengths.join(", ");
            let lengths = lengths.escape_debug();
            Malformed::new(format!("Content-Length is '{lengths}', so the length of the body is unknown"))
        })
    }

    /// Returns the content coding of the body; `None` for identity, which was requested.
    ///
    /// A stored file may have a coding as its property: a .tar.gz is often said to be a .tar in
    /// gzip.
    pub fn content_coding(&self) -> Option<String> {
        let codings = self.members("content-encoding");
        codings.iter().any(|coding| !is_identity(coding)).then(|| codings.join(", "))
    }

    /// Returns whether the server chose the content coding for this client, although identity was
    /// requested.
    pub fn is_coded_on_the_fly(&self) -> bool {
        let is_weak = self.single("etag").and_then(ETag::parse).is_some_and(|tag| tag.is_weak());
        self.content_coding().is_some() && (is_weak || self.has_member("vary", "accept-encoding"))
    }

    /// Checks that the body has no content coding.
    ///
    /// # Errors
    /// [`Malformed`] for any coding but identity: the bytes are not those of the file.
    pub fn require_identity(&self) -> Result<(), Malformed> {
        let Some(coding) = self.content_coding() else { return Ok(()) };
        let coding = coding.escape_debug();
        let why = format!("the body is in the content coding '{coding}', although identity was requested");
        Err(Malformed::new(why))
    }

    /// Returns whether the head contradicts HTTP, so that no further answer on its connection can
    /// be trusted.
    pub fn ends_connection(&self) -> bool {
        let mut codings = self.all("transfer-encoding");
        let is_coded = codings.next().is_some_and(|coding| {
            let is_usual = coding.eq_ignore_ascii_case(b"chunked") && codings.next().is_none();
            !is_usual || self.minor_version == 0 || self.first("content-length").is_some()
        });
        let has_unit = self.members("content-length").iter().any(|length| number::<u64>(length).is_none());
        self.is_malformed || is_coded || has_unit
    }

    /// Returns whether the connection accepts a further request (RFC 9112, section 9.3).
    pub fn keeps_alive(&self) -> bool {
        let options = self.members("connection");
        let has = |option: &str| options.iter().any(|o| o == option);
        !self.ends_connection() && !has("close") && (self.minor_version >= 1 || has("keep-alive"))
    }

    /// Returns whether the server advertises support of ranges; many servers that support ranges do
    /// not.
    pub fn accepts_ranges(&self) -> bool {
        self.members("accept-ranges").iter().any(|unit| unit == "bytes")
    }

    /// Returns whether the server supports resumable uploads (Accept-Patch, RFC 5789, section 3.1).
    pub fn accepts_partial_uploads(&self) -> bool {
        self.members("accept-patch").iter().any(|media| media == PARTIAL_UPLOAD)
    }

    /// Returns whether a list field has the member `member`, given in lower case.
    pub fn has_member(&self, name: &str, member: &str) -> bool {
        self.members(name).iter().any(|found| found == member)
    }

    /// Returns the Content-Length, in an answer to HEAD that of the file; `None` if its values are
    /// contradictory.
    pub fn content_length(&self) -> Option<Bytes> {
        self.stated_length().ok().flatten()
    }

    /// Describes the media type and length of the body, escaped, for messages about unexpected
    /// content.
    pub fn describe_content(&self) -> String {
        let media_type = self.text("content-type").and_then(|value| value.split(';').next()).map(str::trim);
        let media_type = media_type.filter(|media_type| !media_type.is_empty()).unwrap_or("unknown type");
        let length = match self.content_length() {
            Some(length) => format!("{} bytes", length.get()),
            None => "unknown length".to_owned(),
        };
        format!("{} of {length}", media_type.escape_debug())
    }

    /// Returns the entity tag.
    pub fn etag(&self) -> Option<ETag> {
        self.single("etag").and_then(ETag::parse)
    }

    /// Returns the time of the file's last modification.
    pub fn last_modified(&self) -> Option<SystemTime> {
        httpdate::parse_http_date(self.single("last-modified")?).ok()
    }

    /// Returns the URL of the next page of a listing (RFC 8288, `rel=next`), as written.
    pub fn next_page(&self) -> Option<String> {
        self.links().find(|link| link.has_relation("next")).map(|link| link.target().to_owned())
    }

    /// Returns the strong validator of this state of the file, if there is one.
    pub fn validator(&self) -> Option<Validator> {
        // The date is that of the file in every coding.
        let modified = self.single("last-modified").filter(|_| self.content_coding().is_none());
        Validator::choose(self.single("etag"), modified, self.single("date"))
    }

    /// Returns the part of the file in the body.
    pub fn content_range(&self) -> Option<ContentRange> {
        self.single("content-range").and_then(|text| ContentRange::parse(text, Syntax::Lenient))
    }

    /// Returns the target of a redirect; bytes outside UTF-8, as of Latin-1, are percent-encoded as
    /// they are.
    pub fn location(&self) -> Option<String> {
        let value = self.first("location")?;
        let encode = |bytes| percent_encoding::percent_encode(bytes, &AsciiSet::EMPTY).to_string();
        Some(std::str::from_utf8(value).map_or_else(|_| encode(value), |text| trim_text(text).to_owned()))
    }

    /// Returns the sanitised file name that the server suggests.
    pub fn file_name(&self) -> Option<FileName> {
        self.first("content-disposition").and_then(FileName::from_disposition)
    }

    /// Returns the time that the server asks the client to wait, from `now`.
    pub fn retry_after(&self, now: SystemTime) -> Option<Duration> {
        self.text("retry-after").and_then(|value| retry_after(value, now))
    }

    /// Lists the links of all Link fields (RFC 8288), in order.
    fn links(&self) -> impl Iterator<Item = Link> {
        self.all("link").filter_map(|value| std::str::from_utf8(value).ok()).flat_map(Link::parse_all)
    }

    /// Lists the copies of the file on other servers (RFC 6249, section 3), the preferred copy
    /// first.
    pub fn duplicates(&self) -> Vec<DuplicateLink> {
        let mut duplicates: Vec<_> = self.links().filter_map(|link| link.duplicate()).collect();
        duplicates.sort_by_key(|duplicate| duplicate.priority);
        duplicates
    }

    /// Lists the URLs of metalinks that describe the file (RFC 6249, section 4), as written.
    pub fn metalinks(&self) -> Vec<String> {
        self.links().filter(Link::is_metalink).map(|link| link.target().to_owned()).collect()
    }

    /// Lists the digests of the whole file in Repr-Digest and Digest, the preferred algorithm
    /// first.
    ///
    /// Both fields apply to the whole file even in a 206 (RFC 9530, section 3; RFC 3230, section
    /// 4.3.2), but with a content coding to its coded form. Algorithms with different digests are
    /// omitted.
    pub fn digests(&self) -> Vec<Checksum> {
        let text = |value| std::str::from_utf8(value).ok();
        let represented = self.all(REPR_DIGEST).filter_map(text).flat_map(parse_repr_digest);
        let of_instance = self.all("digest").filter_map(text).flat_map(parse_digest);
        Checksum::consistent(represented.chain(of_instance).collect())
    }

    /// Returns whether the server offers an authentication scheme in `field` (WWW- or
    /// Proxy-Authenticate).
    pub fn offers_scheme(&self, field: &str, scheme: &str) -> bool {
        let values = self.all(field).map(|v| String::from_utf8_lossy(v));
        values.flat_map(|v| challenge_schemes(&v)).any(|s| s.eq_ignore_ascii_case(scheme))
    }
}

/// Parses a length, which may have a unit or a parameter as curl reads it: `5 bytes`, `5;`.
fn length_of(text: &str) -> Option<u64> {
    let (digits, rest) = text.split_at(text.find([' ', '\t', ';']).unwrap_or(text.len()));
    number(digits).filter(|_| !rest.contains(|c: char| c.is_ascii_digit()))
}

fn syntax(why: &str) -> Malformed {
    Malformed::new(format!("the head is not valid HTTP/1.1: {why}"))
}

/// Returns whether a coding changes nothing; `none` is a word of servers and curl only.
fn is_identity(coding: &str) -> bool {
    matches!(coding, "identity" | "none")
}

/// Removes spaces and tabs around a value: the only white space of HTTP (RFC 9110, section 5.6.3).
fn trim_text(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

#[cfg(test)]
mod tests;
