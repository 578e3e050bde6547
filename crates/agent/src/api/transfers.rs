//! Adds, lists and controls transfers.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::{Extension, Json};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::error::ErrorBody;
use super::extract::{Checked, TransferId};
use super::{ApiError, ApiState, blocking};
use crate::offer::{ExpectedOffer, Offer};
use crate::queue::TransferPage;
use crate::request::{self, TransferRequest};
use crate::scope::Scope;
use crate::transfer::{Transfer, TransferState};

/// The default number of transfers on a page.
const DEFAULT_PAGE: usize = 100;
/// The maximum number of transfers on a page.
const MAX_PAGE: usize = 1000;

type ApiResult<T> = Result<Json<T>, ApiError>;

/// Parses a JSON body; errors name the field but show no values.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| {
        let message = error.to_string();
        // The value could be a secret in the wrong field.
        let shown = if message.contains("invalid type") || message.contains("invalid value") {
            format!("a value has the wrong type, at line {} column {}", error.line(), error.column())
        } else {
            message
        };
        ApiError::invalid(format!("cannot read the request: {shown}"))
    })
}

/// The transfers to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Only transfers in this state.
    state: Option<String>,
    /// The number of transfers, at most 1000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The most recently added first, in any state: one page, without `next`.
    newest: bool,
    /// The `next` of the previous page.
    after: Option<String>,
}

/// Lists transfers, from running to most recently ended.
#[utoipa::path(get, path = "/api/v1/transfers", tag = "transfers", params(ListQuery),
    responses((status = 200, body = TransferPage), (status = 400, body = ErrorBody)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    Checked(Query(query)): Checked<Query<ListQuery>>,
) -> ApiResult<TransferPage> {
    let state =
        query.state.as_deref().map(str::parse::<TransferState>).transpose().map_err(ApiError::invalid)?;
    let limit = query.limit.unwrap_or(DEFAULT_PAGE);
    if !(1..=MAX_PAGE).contains(&limit) {
        return Err(ApiError::invalid(format!("the limit must be from 1 to {MAX_PAGE}")));
    }
    if query.newest {
        return blocking(&api.queue, move |queue| queue.newest(limit)).await.map(Json);
    }
    blocking(&api.queue, move |queue| queue.page(state, query.after.as_deref(), limit)).await.map(Json)
}

/// Several transfers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TransferList {
    /// The transfers.
    pub transfers: Vec<Transfer>,
}

/// URLs as pasted text.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UrlsText {
    /// One URL per line, each of a file.
    urls_text: String,
}

/// Adds transfers, all or none: one for a request, each request of an array, each line of
/// `urls_text`, or each file of a metalink. In a farm, a list of more than 256 is added in parts,
/// of which the first may be added where the database fails.
#[utoipa::path(post, path = "/api/v1/transfers", tag = "transfers",
    request_body(content((TransferRequest = "application/json"), (Vec<TransferRequest> = "application/json"), (UrlsText = "application/json"), (String = "application/metalink4+xml"))),
    responses((status = 201, description = "They are on the disk", body = TransferList), (status = 400, body = ErrorBody),
              (status = 403, description = "The token does not permit this", body = ErrorBody),
              (status = 503, description = "The database of the farm fails; with the code partly-added, the message says how many are added", body = ErrorBody),
              (status = 507, description = "The disk is full", body = ErrorBody)))]
pub(super) async fn add(
    State(api): State<ApiState>,
    Extension(scope): Extension<Scope>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<TransferList>), ApiError> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let requests = match &kind[..] {
        "application/metalink4+xml" | "application/metalink+xml" => request::of_metalink(&body)?,
        "application/json" => {
            let value: serde_json::Value = parse(&body)?;
            if value.is_array() {
                let requests = parse::<Vec<TransferRequest>>(&body)?;
                if requests.is_empty() {
                    return Err(ApiError::invalid("the array holds no request"));
                }
                requests
            } else if value.get("urls_text").is_some() {
                request::of_text(&parse::<UrlsText>(&body)?.urls_text)?
            } else {
                vec![parse::<TransferRequest>(&body)?]
            }
        }
        // An HTML form of a foreign page cannot send JSON.
        _ => {
            let message = "the body must be application/json or application/metalink4+xml";
            let advice = "set Content-Type";
            return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "media-type", message, advice));
        }
    };
    let transfers = blocking(&api.queue, move |queue| queue.add(requests, scope)).await?;
    Ok((StatusCode::CREATED, Json(TransferList { transfers })))
}

/// Accepts a browser's download if the server sends the agent the same file with support for
/// ranges; answers once that is known.
#[utoipa::path(post, path = "/api/v1/transfers/offer", tag = "transfers", request_body = Offer,
    responses((status = 200, body = Transfer), (status = 400, body = ErrorBody),
              (status = 403, description = "A browser may not request this", body = ErrorBody),
              (status = 409, description = "The browser had better go on; nothing is kept", body = ErrorBody)))]
pub(super) async fn offer(State(api): State<ApiState>, body: Bytes) -> ApiResult<Transfer> {
    let offer: Offer = parse(&body)?;
    let queue = Arc::clone(&api.queue);
    // Dropped with this call, which ends early where the client ends the connection.
    let client = Arc::new(());
    let waiting = Arc::downgrade(&client);
    blocking(&api.queue, move |_| queue.offer(offer, &waiting)).await.map(Json)
}

/// Connects to a server whose file may be offered within seconds.
#[utoipa::path(post, path = "/api/v1/connections", tag = "transfers", request_body = ExpectedOffer,
    responses((status = 202), (status = 400, body = ErrorBody)))]
pub(super) async fn connect(
    State(api): State<ApiState>,
    body: Bytes,
) -> Result<(StatusCode, Json<serde_json::Value>), ApiError> {
    let expected: ExpectedOffer = parse(&body)?;
    let queue = Arc::clone(&api.queue);
    blocking(&api.queue, move |_| queue.expect_offer(expected)).await?;
    Ok((StatusCode::ACCEPTED, Json(serde_json::Value::Null)))
}

/// Returns a transfer.
#[utoipa::path(get, path = "/api/v1/transfers/{id}", tag = "transfers", params(("id" = i64, Path)),
    responses((status = 200, body = Transfer), (status = 404, body = ErrorBody)))]
pub(super) async fn show(State(api): State<ApiState>, Checked(Path(id)): TransferId) -> ApiResult<Transfer> {
    blocking(&api.queue, move |queue| queue.transfer(id)).await.map(Json)
}

/// The files to remove with a transfer.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct RemoveQuery {
    /// Whether the partial files of files that are not complete are deleted; without it, a later
    /// transfer can resume them.
    files: bool,
}

/// Removes an ended transfer from the list; a complete file stays.
#[utoipa::path(delete, path = "/api/v1/transfers/{id}", tag = "transfers", params(("id" = i64, Path), RemoveQuery),
    responses((status = 204), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn remove(
    State(api): State<ApiState>,
    Checked(Path(id)): TransferId,
    Checked(Query(query)): Checked<Query<RemoveQuery>>,
) -> Result<StatusCode, ApiError> {
    blocking(&api.queue, move |queue| queue.remove(id, query.files)).await.map(|()| StatusCode::NO_CONTENT)
}

/// Pauses a transfer; fetched bytes are kept.
#[utoipa::path(post, path = "/api/v1/transfers/{id}/pause", tag = "transfers", params(("id" = i64, Path)),
    responses((status = 200, body = Transfer), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn pause(State(api): State<ApiState>, Checked(Path(id)): TransferId) -> ApiResult<Transfer> {
    blocking(&api.queue, move |queue| queue.pause(id)).await.map(Json)
}

/// Resumes a transfer.
#[utoipa::path(post, path = "/api/v1/transfers/{id}/resume", tag = "transfers", params(("id" = i64, Path)),
    responses((status = 200, body = Transfer), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn resume(
    State(api): State<ApiState>,
    Checked(Path(id)): TransferId,
) -> ApiResult<Transfer> {
    blocking(&api.queue, move |queue| queue.resume(id)).await.map(Json)
}

/// Cancels a transfer; its partial file stays.
#[utoipa::path(post, path = "/api/v1/transfers/{id}/cancel", tag = "transfers", params(("id" = i64, Path)),
    responses((status = 200, body = Transfer), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn cancel(
    State(api): State<ApiState>,
    Checked(Path(id)): TransferId,
) -> ApiResult<Transfer> {
    blocking(&api.queue, move |queue| queue.cancel(id)).await.map(Json)
}

/// Retries a failed or cancelled transfer.
#[utoipa::path(post, path = "/api/v1/transfers/{id}/retry", tag = "transfers", params(("id" = i64, Path)),
    responses((status = 200, body = Transfer), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn retry(State(api): State<ApiState>, Checked(Path(id)): TransferId) -> ApiResult<Transfer> {
    blocking(&api.queue, move |queue| queue.retry(id)).await.map(Json)
}

/// A new link.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FreshLink {
    /// The URL.
    pub url: String,
    /// The headers to send with it; by default those of the transfer.
    #[serde(default)]
    pub headers: Option<Vec<String>>,
}

/// Replaces the link of a transfer, which resumes if the file is the same.
#[utoipa::path(post, path = "/api/v1/transfers/{id}/refresh", tag = "transfers", params(("id" = i64, Path)), request_body = FreshLink,
    responses((status = 200, body = Transfer), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(super) async fn refresh(
    State(api): State<ApiState>,
    Extension(scope): Extension<Scope>,
    Checked(Path(id)): TransferId,
    body: Bytes,
) -> ApiResult<Transfer> {
    let link: FreshLink = parse(&body)?;
    blocking(&api.queue, move |queue| queue.refresh(id, &link.url, link.headers, scope)).await.map(Json)
}

/// A position in the queue.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The transfer that follows; null means the end of the queue.
    pub before: Option<i64>,
}

/// Moves a transfer before another one, whose priority it takes, or to the end.
#[utoipa::path(post, path = "/api/v1/transfers/{id}/move", tag = "transfers", params(("id" = i64, Path)), request_body = Place,
    responses((status = 200, body = Transfer), (status = 404, body = ErrorBody)))]
pub(super) async fn place(
    State(api): State<ApiState>,
    Checked(Path(id)): TransferId,
    body: Bytes,
) -> ApiResult<Transfer> {
    let place: Place = parse(&body)?;
    blocking(&api.queue, move |queue| queue.place(id, place.before)).await.map(Json)
}

/// Changes of a transfer; absent fields stay unchanged.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TransferPatch {
    /// Transfers of higher priority run sooner.
    #[schema(minimum = -1_000_000, maximum = 1_000_000)]
    pub priority: Option<i64>,
    /// The rate limit of the transfer, in bits per second; null removes it.
    #[serde(deserialize_with = "crate::settings::given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 8)]
    pub limit_bps: Option<Option<u64>>,
}

/// Changes the priority or the rate limit of a transfer.
#[utoipa::path(patch, path = "/api/v1/transfers/{id}", tag = "transfers", params(("id" = i64, Path)), request_body = TransferPatch,
    responses((status = 200, body = Transfer), (status = 404, body = ErrorBody)))]
pub(super) async fn patch(
    State(api): State<ApiState>,
    Checked(Path(id)): TransferId,
    body: Bytes,
) -> ApiResult<Transfer> {
    let patch: TransferPatch = parse(&body)?;
    blocking(&api.queue, move |queue| queue.patch(id, patch.priority, patch.limit_bps)).await.map(Json)
}

/// The start of the requested samples.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct SamplesQuery {
    /// Seconds since the run's start.
    since: f64,
}

/// Returns the samples of a running transfer's last minute in the format of records, each with `at`
/// in seconds since the run's start.
#[utoipa::path(get, path = "/api/v1/transfers/{id}/samples", tag = "transfers", params(("id" = i64, Path), SamplesQuery),
    responses((status = 200, body = serde_json::Value), (status = 404, body = ErrorBody)))]
pub(super) async fn samples(
    State(api): State<ApiState>,
    Checked(Path(id)): TransferId,
    Checked(Query(query)): Checked<Query<SamplesQuery>>,
) -> ApiResult<serde_json::Value> {
    let samples = match api.queue.runs.get(id) {
        Some(live) => live.samples(query.since),
        None => {
            // A transfer that does not run has no samples, but must exist.
            blocking(&api.queue, move |queue| queue.transfer(id)).await?;
            Vec::new()
        }
    };
    Ok(Json(serde_json::json!({ "samples": samples })))
}
