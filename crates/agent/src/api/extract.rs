//! Path and query of a request.

use std::fmt::Display;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use super::ApiError;

/// What an extractor of axum reads, with errors of the API in place of its own, which are plain
/// text.
pub(super) struct Checked<E>(pub(super) E);

/// The number of a transfer in the path.
pub(super) type TransferId = Checked<Path<i64>>;

impl<S: Send + Sync, E: FromRequestParts<S, Rejection: Display>> FromRequestParts<S> for Checked<E> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let extracted = E::from_request_parts(parts, state).await;
        extracted.map(Self).map_err(|error| ApiError::invalid(format!("cannot read the request: {error}")))
    }
}
