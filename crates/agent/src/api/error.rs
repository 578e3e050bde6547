//! Errors of the API: `{"error": {"code", "message", "advice"}}`.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::QueueError;

/// An error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    status: StatusCode,
    body: ErrorBody,
}

/// The body of an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetails,
}

/// The details of an error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetails {
    /// A code for programs, such as `not-found`.
    pub code: String,
    /// A message for users.
    pub message: String,
    /// The remedy, for users; empty if the message names it.
    pub advice: String,
    /// The description of the API, where a program's request is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

impl ApiError {
    /// Creates an error.
    pub fn new(status: StatusCode, code: &str, message: impl Into<String>, advice: &str) -> Self {
        let (code, advice) = (code.to_owned(), advice.to_owned());
        let error = ErrorDetails { code, message: message.into(), advice, reference: None };
        Self { status, body: ErrorBody { error } }
    }

    /// Refers programs to the description of the API.
    fn with_reference(mut self) -> Self {
        self.body.error.reference = Some("/api/v1/openapi.json".to_owned());
        self
    }

    /// Creates the error of an invalid request.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", message, "").with_reference()
    }

    /// Creates the error of a bug in this program.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message, "look into the agent's log")
    }
}

impl From<QueueError> for ApiError {
    fn from(error: QueueError) -> Self {
        let (status, code, advice) = match &error {
            QueueError::Invalid(message) => return Self::invalid(message),
            QueueError::NotFound(_) => {
                let advice = "it may have been removed; longhaul queue list shows what there is";
                (StatusCode::NOT_FOUND, "not-found", advice)
            }
            QueueError::WrongState { .. } => {
                (StatusCode::CONFLICT, "wrong-state", "look at its state with longhaul queue list")
            }
            QueueError::PartialFile(_) => {
                let advice = "remove the transfer without its files, or end the program that writes there";
                (StatusCode::CONFLICT, "partial-file", advice)
            }
            QueueError::Forbidden(_) => (StatusCode::FORBIDDEN, "forbidden", ""),
            QueueError::PartlyAdded { .. } => (StatusCode::SERVICE_UNAVAILABLE, "partly-added", ""),
            QueueError::Refused(_) => (StatusCode::CONFLICT, "refused", ""),
            QueueError::Database(error) if error.is_full_disk() => {
                let advice = "free space where the state directory is, and send the request again";
                (StatusCode::INSUFFICIENT_STORAGE, "disk-full", advice)
            }
            QueueError::Database(error) if error.farm().is_some() => {
                let advice = "running transfers continue for the time of their lease";
                (StatusCode::SERVICE_UNAVAILABLE, "farm", advice)
            }
            QueueError::Database(_) => {
                let advice = "check the file system of the state directory";
                (StatusCode::INTERNAL_SERVER_ERROR, "database", advice)
            }
        };
        Self::new(status, code, error.to_string(), advice)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}

pub(super) async fn not_found() -> ApiError {
    let message = "there is nothing at this path";
    ApiError::new(StatusCode::NOT_FOUND, "not-found", message, "").with_reference()
}

pub(super) async fn not_allowed() -> ApiError {
    let message = "this path does not take the method";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", message, "").with_reference()
}
