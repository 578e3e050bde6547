//! Access control of the loopback address, to which any program on this host can connect.
//!
//! A request requires a token, as a bearer token or as the cookie that `/login` sets for a code or
//! the token. Browsers send cookies to all ports of a host: the cookie is for a path that other
//! servers do not know.

use std::net::SocketAddr;
use std::time::Instant;

use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::login_codes::LoginCodes;
use super::{ApiError, ApiState};
use crate::scope::Scope;

/// The cookie's name.
const COOKIE: &str = "longhaul_session";
/// The contexts for deriving the cookie's value and path from the token: leaked, they do not reveal
/// the token or each other.
const SESSION_CONTEXT: &str = "longhaul agent 2026 session cookie of a path";
const PAGE_CONTEXT: &str = "longhaul agent 2026 session path";

/// The token, and the address that it protects.
#[derive(Debug)]
pub struct ApiAccess {
    token: String,
    /// The token that permits downloads alone.
    download_token: String,
    session: String,
    /// The path of the page of a session and of its requests, without the slash at its end.
    page: String,
    codes: LoginCodes,
    address: SocketAddr,
}

impl ApiAccess {
    /// Protects `address` by `token`; `download_token` permits downloads alone.
    pub fn new(token: String, download_token: String, address: SocketAddr) -> Self {
        let derived = |context| blake3::Hash::from(blake3::derive_key(context, token.as_bytes())).to_hex();
        let (session, page) =
            (derived(SESSION_CONTEXT).to_string(), format!("/page/{}", derived(PAGE_CONTEXT)));
        Self { token, download_token, session, page, codes: LoginCodes::default(), address }
    }

    /// Returns a URL that opens the dashboard once within a minute, and does not contain the token.
    pub fn login_url(&self) -> String {
        format!("http://{}/login?code={}", self.address, self.codes.issue(Instant::now()))
    }

    /// Returns the address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the path below which the session's cookie is sent.
    pub(super) fn page(&self) -> &str {
        &self.page
    }

    /// Returns the tokens, for comparison elsewhere.
    pub(crate) fn tokens(&self) -> [(&str, Scope); 2] {
        [(&self.token, Scope::All), (&self.download_token, Scope::Downloads)]
    }

    /// Compares a token in constant time.
    pub fn is_token(&self, given: &str) -> bool {
        is_same(given, &self.token)
    }

    /// Returns what a request may, by its token or cookie; `None` without one.
    fn scope(&self, headers: &HeaderMap) -> Option<Scope> {
        let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        if let Some(bearer) = bearer {
            let token = bearer.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            let given = token?.1.trim();
            return self
                .tokens()
                .into_iter()
                .find(|(token, _)| is_same(given, token))
                .map(|(_, scope)| scope);
        }
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs =
            cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(name, value)| name == COOKIE && is_same(value, &self.session)).then_some(Scope::Page)
    }
}

fn is_same(given: &str, wanted: &str) -> bool {
    // The comparison of hashes takes constant time.
    blake3::hash(given.as_bytes()) == blake3::hash(wanted.as_bytes())
}

/// Refuses requests without a token.
pub(super) async fn require_token(
    State(state): State<ApiState>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let scope = state.access.scope(request.headers()).ok_or_else(unauthorized)?;
    request.extensions_mut().insert(scope);
    Ok(next.run(request).await)
}

/// The header by which a program on the Unix socket that acts for another, as for a browser,
/// permits itself no more than downloads.
pub(crate) const SCOPE_HEADER: &str = "longhaul-scope";

/// Permits requests on the Unix socket all, or as much as they ask for.
pub(super) async fn permit_own(mut request: Request, next: Next) -> Response {
    let scope = if request.headers().contains_key(SCOPE_HEADER) { Scope::Downloads } else { Scope::All };
    request.extensions_mut().insert(scope);
    next.run(request).await
}

fn unauthorized() -> ApiError {
    let message = "the request has no token, or a wrong one";
    let advice = "open the URL that longhaul queue open prints";
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", message, advice)
}

/// The query of `/login`: a code of [`ApiAccess::login_url`], or the token.
#[derive(Debug, Deserialize)]
pub(super) struct LoginQuery {
    code: Option<String>,
    token: Option<String>,
}

/// Sets the cookie, and redirects to the dashboard.
pub(super) async fn login(
    State(state): State<ApiState>,
    Query(query): Query<LoginQuery>,
) -> Result<impl IntoResponse, ApiError> {
    let access = &state.access;
    let is_allowed = query.code.is_some_and(|code| access.codes.redeem(&code, Instant::now()))
        || query.token.is_some_and(|token| access.is_token(&token));
    if !is_allowed {
        return Err(unauthorized());
    }
    let page = format!("{}/", access.page);
    let cookie = format!("{COOKIE}={}; HttpOnly; SameSite=Strict; Path={page}", access.session);
    let headers = [(header::SET_COOKIE, cookie), (header::REFERRER_POLICY, "no-referrer".to_owned())];
    Ok((headers, Redirect::to(&page)))
}

/// The URL of the dashboard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoginUrl {
    /// A URL that opens the dashboard once within a minute.
    pub url: String,
}

/// Returns a URL that opens the dashboard once within a minute; on the Unix socket only.
#[utoipa::path(get, path = "/api/v1/login", tag = "agent",
    responses((status = 200, description = "On the Unix socket only: a URL that opens the dashboard, once and within a minute", body = LoginUrl)))]
pub(super) async fn login_url(
    State(state): State<ApiState>,
    Extension(scope): Extension<Scope>,
) -> Result<Json<LoginUrl>, ApiError> {
    scope.check_login()?;
    Ok(Json(LoginUrl { url: state.access.login_url() }))
}
