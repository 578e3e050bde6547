//! Refuses what web pages of other origins make a browser send to the loopback address.
//!
//! The Host of a request must be this address, because a page could map a name to 127.0.0.1 (DNS
//! rebinding). Its Origin, if any, must be this address (CSRF).

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;

use super::{ApiAccess, ApiError, ApiState};

impl ApiAccess {
    fn is_this_host(&self, host: &str) -> bool {
        let port = self.address().port();
        [self.address().to_string(), format!("localhost:{port}")]
            .iter()
            .any(|known| host.eq_ignore_ascii_case(known))
    }

    /// Returns whether the request is of no page, or of a page of this address.
    pub(crate) fn has_no_foreign_origin(&self, headers: &HeaderMap) -> bool {
        headers.get_all(header::ORIGIN).iter().all(|origin| {
            let host = origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://"));
            host.is_some_and(|host| self.is_this_host(host))
        })
    }
}

/// Refuses requests with the Host of another address.
pub(super) async fn require_this_host(
    State(state): State<ApiState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let (access, hosts) = (&state.access, request.headers().get_all(header::HOST).iter());
    let hosts: Vec<_> = hosts.map(|host| host.to_str().unwrap_or_default()).collect();
    if !matches!(&hosts[..], [host] if access.is_this_host(host)) {
        let message = format!("this is {}, and no other host", access.address());
        let advice = "use the address that longhaul queue open prints";
        return Err(ApiError::new(StatusCode::MISDIRECTED_REQUEST, "wrong-host", message, advice));
    }
    Ok(next.run(request).await)
}

/// Refuses requests from another origin.
pub(super) async fn require_this_origin(
    State(state): State<ApiState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if !state.access.has_no_foreign_origin(request.headers()) {
        let message = "requests from pages of another origin are refused";
        let advice = "use the dashboard, or longhaul queue";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "wrong-origin", message, advice));
    }
    Ok(next.run(request).await)
}
