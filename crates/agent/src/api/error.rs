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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetails {
    /// A code for programs, such as `not-found`.
    pub code: String,
    /// A message for users.
    pub message: String,
    /// The remedy for users; may be empty.
    pub advice: String,
}

impl ApiError {
    /// Creates an error.
    pub fn new(status: StatusCode, code: &str, message: impl Into<String>, advice: &str) -> Self {
        let error =
            ErrorDetails { code: code.to_owned(), message: message.into(), advice: advice.to_owned() };
        Self { status, body: ErrorBody { error } }
    }

    /// Creates the error of an invalid request.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", message, "")
    }

    /// Creates the error of a bug in this program.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message, "look into the agent's log")
    }
}

impl From<QueueError> for ApiError {
    fn from(error: QueueError) -> Self {
        let message = error.to_string();
        match error {
            QueueError::NotFound(_) => Self::new(
                StatusCode::NOT_FOUND,
                "not-found",
                message,
                "longhaul queue list shows what there is",
            ),
            QueueError::WrongState { .. } => Self::new(StatusCode::CONFLICT, "wrong-state", message, ""),
            QueueError::Invalid(_) => Self::invalid(message),
            QueueError::Refused(_) => Self::new(StatusCode::CONFLICT, "refused", message, ""),
            QueueError::Database(error) if error.is_full_disk() => {
                let advice = "free space where the state directory is, and try again";
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "disk-full", message, advice)
            }
            QueueError::Database(_) => {
                let advice = "check the file system of the state directory";
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "database", message, advice)
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.body)).into_response()
    }
}

pub(super) async fn not_found() -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "not-found",
        "there is nothing at this path",
        "see /api/v1/openapi.json",
    )
}

pub(super) async fn not_allowed() -> ApiError {
    let message = "this path does not take the method";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", message, "see /api/v1/openapi.json")
}
