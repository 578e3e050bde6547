//! Authentication challenges (RFC 9110, section 11.3): the schemes that a server offers.

/// Lists the schemes in one WWW-Authenticate or Proxy-Authenticate value, in order, as written.
///
/// A name followed by `=` is a parameter, any other name a scheme.
pub fn challenge_schemes(value: &str) -> Vec<String> {
    split_outside_quotes(value)
        .into_iter()
        .filter_map(|item| {
            let end = item.find(|c: char| c.is_whitespace() || c == '=').unwrap_or(item.len());
            let (name, rest) = item.split_at(end);
            (!name.is_empty() && !rest.trim_start().starts_with('=')).then(|| name.to_owned())
        })
        .collect()
}

/// Splits at commas outside quoted strings.
fn split_outside_quotes(value: &str) -> Vec<&str> {
    let (mut items, mut start, mut quoted, mut escaped) = (Vec::new(), 0, false, false);
    for (at, c) in value.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ',' if !quoted => {
                items.push(value[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(value[start..].trim());
    items
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
