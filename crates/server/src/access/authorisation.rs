//! Decides whether a request is allowed, before it is routed: tokens, their rights and directories,
//! credentials in clear.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use longhaul_core::failure::Failure;
use longhaul_core::proto::http::{ReplyHead, RequestHead, TargetError, TargetPath};
use longhaul_core::units::Bytes;

use crate::AccessConfig;
use crate::admission::ClientKey;
use crate::admission::shares::Requester;
use crate::connection::targets::{is_for, is_measurement, lists_uploads, names_upload};
use crate::reply::Reply;
use crate::reply::static_files::StaticFiles;

use super::Token;
use super::failed_logins::{FailedLogins, Login};
use super::token_file::{TokenEntry, TokenFile};

/// The tokens of a server.
#[derive(Debug, Clone, Default)]
pub enum Tokens {
    /// None: reading is public, nothing is written.
    #[default]
    None,
    /// One, with all rights to the whole directory.
    One(Token),
    /// Those of a TOML file, which is read again when it changes (docs/uploads.md).
    File(PathBuf),
}

/// What a token permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Right {
    /// To get files and listings.
    Read,
    /// To make files and directories.
    Write,
    /// To delete files, and to replace them.
    Delete,
}

/// What a request needs of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// No token.
    Nothing,
    /// Any valid token.
    AnyToken,
    /// A token with this right to the target.
    Right(Right),
}

/// What an allowed request may do besides what it asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Grant {
    /// The token's name; `None` where the server has only one, or none was needed.
    pub(crate) holder: Option<Arc<str>>,
    /// Existing files may be replaced, and paused uploads of other tokens discarded.
    pub(crate) may_replace: bool,
    /// The space that unfinished uploads of the token may take.
    pub(crate) quota: Option<Bytes>,
    pub(crate) client: ClientKey,
}

impl Grant {
    /// Returns what the request's share of costly things belongs to.
    pub(crate) fn requester(&self) -> Requester {
        self.holder.clone().map_or(Requester::Client(self.client), Requester::Token)
    }

    /// Returns whether a paused upload of this token may be continued and started over.
    ///
    /// The only token of a server may do so with every upload, and every token with one of such a
    /// server.
    pub(crate) fn may_start_over(&self, holder: Option<&str>) -> bool {
        self.holder.is_none() || holder.is_none() || self.holder.as_deref() == holder
    }

    /// Returns whether a paused upload of this token may be listed and discarded.
    pub(crate) fn may_discard(&self, holder: Option<&str>) -> bool {
        self.may_start_over(holder) || self.may_replace
    }
}

/// The rules of a listening address.
pub(crate) struct Access {
    config: AccessConfig,
    tokens: TokenStore,
    /// Measurements are allowed.
    measures: bool,
    failed_logins: FailedLogins,
}

/// The connection of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestOrigin {
    pub(crate) client: ClientKey,
    /// Others than the client may have read the request on its way.
    pub(crate) is_exposed: bool,
}

enum TokenStore {
    None,
    One(TokenEntry),
    File(Arc<TokenFile>),
}

impl Access {
    /// Reads the tokens, but not their directories.
    pub(crate) fn new(config: &AccessConfig, measures: bool) -> Result<Self, Failure> {
        let tokens = match &config.tokens {
            Tokens::None => TokenStore::None,
            Tokens::One(token) => TokenStore::One(TokenEntry::with_all_rights(token.clone())),
            Tokens::File(path) => TokenStore::File(Arc::new(TokenFile::read(path)?)),
        };
        Ok(Self { config: config.clone(), tokens, measures, failed_logins: FailedLogins::default() })
    }

    /// Makes the rules of an address that is public and only read.
    pub(crate) fn public() -> Self {
        let config = AccessConfig { allow_cleartext: true, ..AccessConfig::default() };
        let failed_logins = FailedLogins::default();
        Self { config, tokens: TokenStore::None, measures: false, failed_logins }
    }

    /// Checks that the directories of the tokens can be used.
    pub(crate) async fn check_directories(&self, files: &Arc<StaticFiles>) -> Result<(), Failure> {
        match &self.tokens {
            TokenStore::File(file) => file.check(files).await,
            TokenStore::None | TokenStore::One(_) => Ok(()),
        }
    }

    /// Returns the file of tokens, which is to be followed.
    pub(crate) fn token_file(&self) -> Option<Arc<TokenFile>> {
        match &self.tokens {
            TokenStore::File(file) => Some(Arc::clone(file)),
            TokenStore::None | TokenStore::One(_) => None,
        }
    }

    /// Decides on a request for `path`.
    ///
    /// # Errors
    /// The reply: 421 for another host's name, 400 for two tokens, 401 without a valid one, 403
    /// where the token does not permit the request, or credentials come in clear, 429 after too
    /// many wrong tokens of this client.
    pub(crate) fn authorise(
        &self,
        request: &RequestHead,
        path: &Result<TargetPath, TargetError>,
        origin: RequestOrigin,
        now: (SystemTime, Instant),
    ) -> Result<Grant, Reply> {
        let RequestOrigin { client, is_exposed } = origin;
        let (now, instant) = now;
        if !self.config.hosts.is_empty() && !is_for(request, &self.config.hosts) {
            return Err(Reply::text(421, "the server has another name than this Host (its option --host)"));
        }
        let need = self.need(request);
        let has_tokens = !matches!(self.tokens, TokenStore::None);
        let is_secret = need != Need::Nothing || request.header("authorization").is_some();
        if is_exposed && has_tokens && is_secret && !self.config.allow_cleartext {
            return Err(Reply::text(
                403,
                "credentials are not taken unencrypted: use https, or start the server with --allow-cleartext",
            ));
        }
        if need == Need::Nothing {
            return Ok(Grant { client, ..Grant::default() });
        }
        if request.repeats("authorization") {
            return Err(Reply::text(400, "there may be one Authorization only"));
        }
        if request.header("authorization").is_none() {
            return Err(unauthorized());
        }
        let entry = self.presented(request).filter(|entry| !entry.is_expired(now));
        let login = self.failed_logins.judge(client, entry.as_deref(), instant);
        let entry = entry.filter(|_| login == Login::Accepted).ok_or_else(|| match login {
            Login::Refused => {
                Reply::later(429, 1, "too many wrong tokens came from this address: try again later")
            }
            Login::Accepted | Login::Wrong => unauthorized(),
        })?;
        if let (Need::Right(right), Ok(path)) = (need, path)
            && !entry.permits(right, path)
        {
            return Err(Reply::text(403, "the token does not permit this here"));
        }
        let may_replace = path.as_ref().is_ok_and(|path| entry.permits(Right::Delete, path));
        Ok(Grant { holder: entry.name.clone(), may_replace, quota: entry.quota, client })
    }

    /// Returns what a request needs.
    fn need(&self, request: &RequestHead) -> Need {
        match request.method() {
            _ if self.measures && is_measurement(request) => match self.tokens {
                TokenStore::None => Need::Nothing,
                TokenStore::One(_) | TokenStore::File(_) => Need::AnyToken,
            },
            "PUT" | "PATCH" | "MKCOL" if self.config.writable => Need::Right(Right::Write),
            "HEAD" | "DELETE" if self.config.writable && names_upload(request.target()) => {
                Need::Right(Right::Write)
            }
            "DELETE" if self.config.writable => Need::Right(Right::Delete),
            "GET" if self.config.writable && lists_uploads(request) => Need::Right(Right::Write),
            "GET" | "HEAD" if self.config.require_token => Need::Right(Right::Read),
            _ => Need::Nothing,
        }
    }

    /// Returns the token that a request shows.
    fn presented(&self, request: &RequestHead) -> Option<Arc<TokenEntry>> {
        let (scheme, shown) = request.header("authorization")?.split_once(' ')?;
        let shown = Some(shown.trim()).filter(|_| scheme.eq_ignore_ascii_case("bearer"))?;
        match &self.tokens {
            TokenStore::None => None,
            TokenStore::One(entry) => entry.token.is(shown).then(|| Arc::new(entry.clone())),
            TokenStore::File(file) => file.find(shown),
        }
    }
}

/// 401: the request lacks a valid token.
fn unauthorized() -> Reply {
    let head = ReplyHead::new(401).with("WWW-Authenticate", "Bearer");
    Reply::explained(head, "this needs a valid token: Authorization: Bearer TOKEN")
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use super::*;

    fn access(require_token: bool, allow_cleartext: bool) -> Access {
        let tokens = Tokens::One(Token::new("s3cret").unwrap());
        let (hosts, writable) = (Vec::new(), true);
        Access::new(&AccessConfig { hosts, writable, tokens, require_token, allow_cleartext }, true).unwrap()
    }

    fn status(access: &Access, first: &str, line: &str, is_exposed: bool) -> u16 {
        let client = IpAddr::from([10, 0, 0, 1]).into();
        status_at(access, first, line, RequestOrigin { client, is_exposed }, Instant::now())
    }

    fn status_at(access: &Access, first: &str, line: &str, origin: RequestOrigin, now: Instant) -> u16 {
        let text = format!("{first} HTTP/1.1\r\nHost: h\r\n{line}\r\n\r\n");
        let request = RequestHead::parse(text.as_bytes()).unwrap().unwrap().0;
        let path = TargetPath::parse(request.target());
        let now = (SystemTime::now(), now);
        access.authorise(&request, &path, origin, now).map_or_else(|reply| reply.status(), |_| 200)
    }

    #[test]
    fn wrong_tokens_of_a_client_are_limited_and_others_are_served() {
        let (access, start) = (access(false, true), Instant::now());
        let put = |number: u8, token: &str, seconds: f64| {
            let client = IpAddr::from([10, 0, 0, number]).into();
            let now = start + Duration::from_secs_f64(seconds);
            status_at(&access, "PUT /f", token, RequestOrigin { client, is_exposed: false }, now)
        };
        let (right, wrong) = ("Authorization: Bearer s3cret", "Authorization: Bearer guess");
        let guesses: Vec<_> = (0..1000).map(|n| put(1, wrong, f64::from(n) / 1000.0)).collect();
        assert_eq!(guesses.iter().filter(|status| **status == 401).count(), 20);
        // A guess that is right shows no more than a wrong one; requests without a token are not
        // counted.
        assert_eq!([put(1, right, 0.999), put(1, "X: y", 0.999), put(2, right, 0.999)], [429, 401, 200]);
        assert_eq!([put(1, right, 2.1), put(1, wrong, 2.1), put(1, right, 2.1)], [200, 401, 200]);
        // A token that was accepted from this client stays so: the guesses may be another's behind
        // the same proxy.
        assert_eq!([put(1, wrong, 2.1), put(1, wrong, 2.1), put(1, right, 2.1)], [401, 429, 200]);
    }

    #[test]
    fn only_requests_with_the_token_are_allowed() {
        const TOKEN: &str = "Authorization: Bearer s3cret";
        let (open, guarded) = (access(false, false), access(true, false));
        assert_eq!(status(&open, "PUT /f", "Authorization: bearer  s3cret", false), 200);
        assert_eq!(status(&open, "GET /f", "X: y", false), 200);
        for line in [
            "X: y",
            "Authorization: Bearer",
            "Authorization: Bearer ",
            "Authorization: Bearer s3cre",
            "Authorization: Bearer s3cret2",
            "Authorization: Basic s3cret",
            "Authorization: s3cret",
        ] {
            assert_eq!(status(&open, "PUT /f", line, false), 401, "{line}");
        }
        let two = format!("{TOKEN}\r\nAuthorization: Bearer other");
        for first in ["GET /f", "HEAD /f", "PUT /f", "PATCH /f", "MKCOL /d", "DELETE /f", "GET /?uploads"] {
            assert_eq!(status(&guarded, first, &two, false), 400, "{first} with two tokens");
        }
        for first in ["GET /f", "HEAD /f", "GET /"] {
            let found = [TOKEN, "X: y"].map(|line| status(&guarded, first, line, false));
            assert_eq!(found, [200, 401], "{first}");
        }
        assert_eq!(status(&guarded, "OPTIONS /f", "X: y", false), 200);
    }

    #[test]
    fn credentials_in_clear_are_refused_unless_allowed() {
        let token = "Authorization: Bearer s3cret";
        let strict = access(false, false);
        for (first, line) in [
            ("PUT /f", token),
            ("PUT /f", "X: y"),
            ("GET /f", token),
            ("GET /f", "Authorization: Basic YTpi"),
        ] {
            assert_eq!(status(&strict, first, line, true), 403, "{first} {line}");
        }
        assert_eq!(status(&strict, "GET /f", "X: y", true), 200);
        assert_eq!(status(&access(false, true), "PUT /f", token, true), 200);
    }
}
