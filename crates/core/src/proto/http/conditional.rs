//! Conditional requests: the decision between the content, 304 and 412 (RFC 9110, section 13).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::ETag;
use super::request_head::RequestHead;

/// The validators of the current content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validators {
    etag: ETag,
    modified: SystemTime,
}

/// The result of a request's conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Answer as without conditions.
    Proceed,
    /// The client's copy is current: answer 304.
    NotModified,
    /// A precondition is false: answer 412.
    Failed,
}

impl Validators {
    /// Creates validators; `modified` is truncated to whole seconds, the resolution of an HTTP
    /// date.
    pub fn new(etag: ETag, modified: SystemTime) -> Self {
        let seconds = modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { etag, modified: UNIX_EPOCH + Duration::from_secs(seconds) }
    }

    /// Returns the entity tag.
    pub fn etag(&self) -> &ETag {
        &self.etag
    }

    /// Returns the modification time, in whole seconds.
    pub fn modified(&self) -> SystemTime {
        self.modified
    }

    /// Evaluates the conditions of a GET or HEAD in the order of RFC 9110, section 13.2.2.
    ///
    /// A malformed date is ignored (sections 13.1.3 and 13.1.4).
    pub fn evaluate(&self, request: &RequestHead) -> Condition {
        if let Some(list) = request.list("if-match") {
            if !self.is_in(&list, ETag::matches_strongly) {
                return Condition::Failed;
            }
        } else if let Some(date) = date(request, "if-unmodified-since")
            && self.modified > date
        {
            return Condition::Failed;
        }
        if let Some(list) = request.list("if-none-match") {
            if self.is_in(&list, ETag::matches_weakly) {
                return Condition::NotModified;
            }
        } else if let Some(date) = date(request, "if-modified-since")
            && self.modified <= date
        {
            return Condition::NotModified;
        }
        Condition::Proceed
    }

    /// Returns whether `Range` applies: `If-Range` is absent or matches this content (section
    /// 13.1.5).
    ///
    /// A date is a strong validator only once a second has passed since the modification: until
    /// then, the content could change again with the same date (section 8.8.2.2).
    pub fn range_applies(&self, request: &RequestHead, now: SystemTime) -> bool {
        let Some(text) = request.header("if-range") else { return true };
        if let Some(tag) = ETag::parse(text) {
            return tag.matches_strongly(&self.etag);
        }
        let settled = self.modified + Duration::from_secs(1) <= now;
        settled && httpdate::parse_http_date(text).is_ok_and(|date| date == self.modified)
    }

    fn is_in(&self, list: &str, same: fn(&ETag, &ETag) -> bool) -> bool {
        list.trim() == "*" || tags(list).any(|tag| same(&tag, &self.etag))
    }
}

/// Splits a list of entity tags at the commas outside quotes, since a tag may contain commas.
fn tags(list: &str) -> impl Iterator<Item = ETag> {
    let mut rest = list;
    std::iter::from_fn(move || {
        let open = rest.find('"')?;
        let close = open + 1 + rest[open + 1..].find('"')?;
        let start = if rest[..open].ends_with("W/") { open - 2 } else { open };
        let tag = &rest[start..=close];
        rest = &rest[close + 1..];
        Some(ETag::parse(tag))
    })
    .flatten()
}

fn date(request: &RequestHead, name: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(request.header(name)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const SAME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn validators() -> Validators {
        let modified = httpdate::parse_http_date(SAME).unwrap() + Duration::from_millis(900);
        Validators::new(ETag::parse("\"a,b\"").unwrap(), modified)
    }

    fn request(lines: &[(&str, &str)]) -> RequestHead {
        let lines: String = lines.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        RequestHead::parse(format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n").as_bytes()).unwrap().unwrap().0
    }

    #[test]
    fn conditions_are_evaluated_in_order_of_precedence() {
        use Condition::{Failed, NotModified, Proceed};
        for (lines, outcome) in [
            (&[][..], Proceed),
            (&[("If-Match", "*")], Proceed),
            (&[("If-Match", "\"x\", \"a,b\"")], Proceed),
            (&[("If-Match", "\"x\"")], Failed),
            (&[("If-Match", "W/\"a,b\"")], Failed),
            (&[("If-Match", "\"a,b\""), ("If-Unmodified-Since", BEFORE)], Proceed),
            (&[("If-Unmodified-Since", BEFORE)], Failed),
            (&[("If-Unmodified-Since", SAME)], Proceed),
            (&[("If-Unmodified-Since", "yesterday")], Proceed),
            (&[("If-None-Match", "\"a,b\"")], NotModified),
            (&[("If-None-Match", "W/\"a,b\"")], NotModified),
            (&[("If-None-Match", "*")], NotModified),
            (&[("If-None-Match", "\"x\"")], Proceed),
            (&[("If-None-Match", "\"x\""), ("If-Modified-Since", AFTER)], Proceed),
            (&[("If-None-Match", "\"a,b\""), ("If-Modified-Since", BEFORE)], NotModified),
            (&[("If-Modified-Since", BEFORE)], Proceed),
            (&[("If-Modified-Since", SAME)], NotModified),
            (&[("If-Modified-Since", AFTER)], NotModified),
            (&[("If-Modified-Since", "garbage")], Proceed),
            (&[("If-Match", "\"x\""), ("If-None-Match", "\"a,b\"")], Failed),
            (&[("If-Match", "\"a,b\""), ("If-None-Match", "\"a,b\"")], NotModified),
        ] {
            assert_eq!(validators().evaluate(&request(lines)), outcome, "{lines:?}");
        }
    }

    #[test]
    fn if_range_must_match_the_content() {
        let now = validators().modified() + Duration::from_secs(60);
        for (value, applies) in [
            ("\"a,b\"", true),
            ("W/\"a,b\"", false),
            ("\"x\"", false),
            (SAME, true),
            (BEFORE, false),
            (AFTER, false),
            ("garbage", false),
        ] {
            let request = request(&[("If-Range", value)]);
            assert_eq!(validators().range_applies(&request, now), applies, "{value}");
        }
        assert!(validators().range_applies(&request(&[]), now));
        // A date is weak within a second of the modification.
        assert!(!validators().range_applies(&request(&[("If-Range", SAME)]), validators().modified()));
    }
}
