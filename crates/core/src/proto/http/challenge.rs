//! Authentication challenges (RFC 9110, section 11.3): the schemes that a server offers.

use super::link::members;

/// Lists the schemes in one WWW-Authenticate or Proxy-Authenticate value, in order, as written.
///
/// A name followed by `=` is a parameter, any other name a scheme.
pub fn challenge_schemes(value: &str) -> Vec<String> {
    members(value, b',')
        .into_iter()
        .map(str::trim)
        .filter_map(|item| {
            let end = item.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(item.len());
            let (name, rest) = item.split_at(end);
            (!name.is_empty() && !rest.trim_start().starts_with('=')).then(|| name.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_not_schemes() {
        let several =
            r#"Digest realm="x", qop="auth", nonce = abc, basic realm="say \"hi\", you", Negotiate"#;
        assert_eq!(challenge_schemes(r#"Basic realm="a, Digest b""#), ["Basic"]);
        assert_eq!(challenge_schemes(several), ["Digest", "basic", "Negotiate"]);
        assert!(challenge_schemes("").is_empty() && challenge_schemes(",,=,").is_empty());
    }
}
