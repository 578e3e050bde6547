//! Parses a URL from the user.

use longhaul_engine::connect::without_zone;
use url::Url;

/// Parses a URL; the error for a missing scheme suggests one.
///
/// # Errors
/// The reason, in words.
pub(crate) fn parse(text: &str) -> Result<Url, String> {
    let text = &*without_zone(text)?;
    let meant = || format!("it has no scheme; did you mean https://{text} or http://{text}?");
    match Url::parse(text) {
        // "host:8080/f" and "host.example:f" parse as URLs with the scheme "host".
        Ok(url) if url.cannot_be_a_base() && !text.contains("://") && looks_like_host(text) => Err(meant()),
        Ok(url) => Ok(url),
        Err(url::ParseError::RelativeUrlWithoutBase) if looks_like_host(text) => Err(meant()),
        Err(url::ParseError::RelativeUrlWithoutBase) => {
            Err("it is no URL; write one as https://host/file".to_owned())
        }
        Err(error) => Err(format!("{error}; write a URL as https://host/file")),
    }
}

/// Returns whether a text begins like a host name or address.
fn looks_like_host(text: &str) -> bool {
    let host = text.split(['/', '?', '#']).next().unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '[' | ']' | ':');
    (name.contains('.') || name == "localhost" || name.starts_with('['))
        && !name.starts_with('.')
        && name.chars().all(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_without_a_scheme_suggests_one() {
        for text in ["example.org/f", "localhost:8080/f", "192.0.2.1:80/f", "[::1]:80/f", "h.example:8080"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(&format!("https://{text} or")), "{text}: {error}");
        }
        for text in ["", "f", "./f", "dir/f"] {
            let error = parse(text).unwrap_err();
            assert!(!error.contains("did you mean"), "{text}: {error}");
            assert!(error.contains("https://host/file"), "{text}: {error}");
        }
        for text in ["http://h/f", "gsiftp://h/f", "file:///etc/passwd", "mailto:a@b"] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }
}
