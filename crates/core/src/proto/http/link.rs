//! The Link field (RFC 8288) and its mirrors of a file (RFC 6249).

use crate::proto::metalink::{LOWEST_PRIORITY, MEDIA_TYPE};
use crate::proto::number;

/// A link from the requested resource to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    target: String,
    parameters: Vec<(String, String)>,
}

/// A copy of the file on another server (`rel=duplicate`, RFC 6249, section 3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuplicateLink {
    /// The URL as written, possibly relative to the requested one.
    pub url: String,
    /// The priority, from 1 (preferred) to 999,999.
    pub priority: u32,
    /// The server's country (ISO 3166-1 alpha-2), in lower case.
    pub location: Option<String>,
    /// The number of path segments at the end of both URLs that are equal (section 3.4).
    pub depth: Option<u32>,
}

impl Link {
    /// Parses the links of one Link value.
    ///
    /// Malformed text is skipped up to the next comma outside quotes and angle brackets.
    pub fn parse_all(value: &str) -> Vec<Self> {
        members(value, b',').into_iter().filter_map(Self::parse).collect()
    }

    /// Parses `<target>; name=value; name="quoted value"`. The first value of a repeated parameter
    /// counts (RFC 8288, section 3.3).
    fn parse(text: &str) -> Option<Self> {
        let (target, rest) = text.trim().strip_prefix('<')?.split_once('>')?;
        let target = target.trim();
        if target.is_empty() || target.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return None;
        }
        let (before, parameters) = rest.split_once(';').unwrap_or((rest, ""));
        if !before.trim().is_empty() {
            return None;
        }
        let parameter = |text: &str| {
            let (name, value) = text.split_once('=').unwrap_or((text, ""));
            (name.trim().to_ascii_lowercase(), unquoted(value.trim()))
        };
        let parameters = members(parameters, b';').into_iter().map(parameter).collect();
        Some(Self { target: target.to_owned(), parameters })
    }

    /// Returns the target URL as written, possibly relative to the requested one.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Returns the value of a parameter; `name` is in lower case.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns whether the link has the relation `rel` from the requested resource to the target.
    ///
    /// A link with an `anchor` is between two other resources (RFC 8288, section 3.2).
    pub fn has_relation(&self, rel: &str) -> bool {
        let mut relations = self.parameter("rel").unwrap_or_default().split_ascii_whitespace();
        self.parameter("anchor").is_none() && relations.any(|known| known.eq_ignore_ascii_case(rel))
    }

    /// Returns the copy of the file if the link has `rel=duplicate`.
    pub fn duplicate(&self) -> Option<DuplicateLink> {
        let number = |name: &str| self.parameter(name).and_then(number::<u32>);
        let country = |text: &&str| text.len() == 2 && text.bytes().all(|b| b.is_ascii_alphabetic());
        self.has_relation("duplicate").then(|| DuplicateLink {
            url: self.target.clone(),
            priority: number("pri").filter(|p| (1..=LOWEST_PRIORITY).contains(p)).unwrap_or(LOWEST_PRIORITY),
            location: self.parameter("geo").filter(country).map(str::to_ascii_lowercase),
            depth: number("depth"),
        })
    }

    /// Returns whether the target is a Metalink 4 that describes the file (RFC 6249, section 4).
    pub fn is_metalink(&self) -> bool {
        let media = self.parameter("type").unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default().trim();
        self.has_relation("describedby") && media.eq_ignore_ascii_case(MEDIA_TYPE)
    }
}

/// Splits at `separator` outside quoted strings and the angle brackets of a target.
pub(super) fn members(text: &str, separator: u8) -> Vec<&str> {
    let (mut found, mut start) = (Vec::new(), 0);
    let (mut quoted, mut escaped, mut in_target) = (false, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' if !in_target => quoted = !quoted,
            b'<' if !quoted => in_target = true,
            b'>' if !quoted => in_target = false,
            b if b == separator && !quoted && !in_target => {
                found.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&text[start..]);
    found.retain(|member| !member.trim().is_empty());
    found
}

/// Returns a token, or the content of a quoted string.
fn unquoted(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"') else { return value.to_owned() };
    let mut text = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next().filter(|c| *c != '"') {
        text.push(if c == '\\' { chars.next().unwrap_or(c) } else { c });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_rfc_6249_are_parsed() {
        let value = "<http://www2.example.com/example.ext>; rel=duplicate; pri=1; pref, \
            <ftp://ftp.example.com/example.ext>; rel=\"duplicate\"; pri=\"2\"; geo=GB; depth=1,\
            <http://example.com/example.ext.torrent>; rel=describedby; type=\"application/x-bittorrent\"; name=\"a, b; <c>\",\
            <http://example.com/example.ext.meta4>; rel=describedby; type=\"application/metalink4+xml\"";
        let links = Link::parse_all(value);
        let duplicates: Vec<_> = links.iter().filter_map(Link::duplicate).collect();
        let [one, two] = &duplicates[..] else { panic!("{duplicates:?}") };
        assert_eq!((one.url.as_str(), one.priority), ("http://www2.example.com/example.ext", 1));
        assert_eq!((two.url.as_str(), two.priority), ("ftp://ftp.example.com/example.ext", 2));
        assert_eq!((&one.location, one.depth), (&None, None));
        assert_eq!((two.location.as_deref(), two.depth), (Some("gb"), Some(1)));
        assert_eq!(links[2].parameter("name"), Some("a, b; <c>"));
        let metalinks: Vec<_> = links.iter().filter(|l| l.is_metalink()).map(Link::target).collect();
        assert_eq!((links.len(), &metalinks[..]), (4, &["http://example.com/example.ext.meta4"][..]));
    }

    #[test]
    fn link_of_another_resource_is_no_duplicate_and_a_wrong_priority_the_lowest() {
        let value = r#"<http://h/a>; rel=duplicate; anchor="http://h/b", <http://h/c>; REL="next Duplicate""#;
        let duplicates =
            Link::parse_all(value).iter().filter_map(Link::duplicate).map(|d| d.url).collect::<Vec<_>>();
        assert_eq!(duplicates, ["http://h/c"]);
        for pri in ["0", "-1", "1000000", "99999999999", "x", ""] {
            let links = Link::parse_all(&format!("<a>; rel=duplicate; pri={pri}"));
            assert_eq!(links[0].duplicate().unwrap().priority, LOWEST_PRIORITY, "{pri}");
        }
    }

    #[test]
    fn malformed_links_are_skipped() {
        let malformed =
            "|,,;|http://h/a; rel=duplicate|<>; rel=duplicate|<a b>; rel=x|<a\u{1}>|<a> b; rel=x|<a";
        for value in malformed.split('|') {
            assert_eq!(Link::parse_all(value), [], "{value}");
        }
        let links = Link::parse_all("garbage, <http://h/a,b;c>; rel=duplicate, x");
        assert_eq!(links[0].target(), "http://h/a,b;c");
    }
}
