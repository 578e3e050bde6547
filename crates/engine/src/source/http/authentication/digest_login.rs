//! Logins by Digest (RFC 7616), which a server asks for in place of Basic.

use std::fmt;

use http_auth::{DigestClient, PasswordParams, parse_challenges};
use longhaul_core::proto::http::{HeaderField, ResponseHead};
use longhaul_core::proto::netrc::Login;
use parking_lot::Mutex;

/// The most nonces in a row that a server may call stale before any other answer.
const MAX_STALE: u32 = 3;

/// A login, and the challenge that it answers; `Debug` hides both.
pub(crate) struct DigestLogin {
    login: Login,
    /// The challenge, and the number of its answers.
    client: Mutex<DigestClient>,
    /// How many challenges before this one were stale.
    stale: u32,
}

impl fmt::Debug for DigestLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest ***")
    }
}

impl DigestLogin {
    /// Answers the Digest challenge of a 401 by `login`; `None` if there is none, or if the login
    /// was refused by `earlier`.
    pub(crate) fn new(head: &ResponseHead, login: &Login, earlier: Option<&Self>) -> Option<Self> {
        let values = head.all("www-authenticate").filter_map(|value| std::str::from_utf8(value).ok());
        let challenges = values.filter_map(|value| parse_challenges(value).ok()).flatten();
        let mut known = challenges.filter_map(|challenge| DigestClient::try_from(&challenge).ok());
        let client = known.next()?;
        let stale = match earlier {
            None => 0,
            Some(earlier) if client.stale() && earlier.stale < MAX_STALE => earlier.stale + 1,
            Some(_) => return None,
        };
        Some(Self { login: login.clone(), client: Mutex::new(client), stale })
    }

    /// Returns the header of one request; `None` if the challenge demands more than this client
    /// has.
    pub(crate) fn field(&self, method: &str, target: &str) -> Option<HeaderField> {
        let parameters = PasswordParams {
            username: &self.login.user,
            password: &self.login.password,
            uri: target,
            method,
            body: None,
        };
        let value = self.client.lock().respond(&parameters).ok()?;
        HeaderField::new("Authorization", &value).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(fields: &str, earlier: Option<&DigestLogin>) -> Option<DigestLogin> {
        let head = ResponseHead::parse(format!("HTTP/1.1 401 X\r\n{fields}\r\n\r\n").as_bytes()).unwrap();
        DigestLogin::new(&head, &Login { user: "u".to_owned(), password: "p".to_owned() }, earlier)
    }

    #[test]
    fn only_a_digest_challenge_is_answered_and_a_refused_login_not_again() {
        let challenge = "WWW-Authenticate: Basic realm=\"r\", Digest realm=\"r\", qop=\"auth\", nonce=\"n\"";
        let mut last = answer(challenge, None).unwrap();
        for number in ["nc=00000001", "nc=00000002"] {
            assert!(last.field("GET", "/f?a").unwrap().value().contains(number));
        }
        let stale = format!("{challenge}, stale=true");
        for _ in 0..MAX_STALE {
            last = answer(&stale, Some(&last)).unwrap();
        }
        assert!(answer(&stale, Some(&last)).is_none() && answer(challenge, Some(&last)).is_none());
        for fields in ["WWW-Authenticate: Basic", "WWW-Authenticate: Digest", "X: y"] {
            assert!(answer(fields, None).is_none(), "{fields}");
        }
    }
}
