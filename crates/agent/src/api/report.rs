//! The report of a transfer, generated from its record.

use axum::extract::{Path, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{Html, IntoResponse};
use longhaul_scope::record::Record;
use longhaul_scope::{draw, figures};

use super::error::ErrorBody;
use super::extract::{Checked, TransferId};
use super::{ApiError, ApiState, blocking};

/// The content security policy: the page may use its own scripts and styles only. It has a separate
/// origin without access to the API, because names in it come from servers.
const POLICY: &str = "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; \
    frame-ancestors 'none'";
const HEADERS: [(HeaderName, &str); 3] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Returns the report of a transfer's last run, in the format of `longhaul report`.
#[utoipa::path(get, path = "/api/v1/transfers/{id}/report", tag = "transfers", params(("id" = i64, Path)),
    responses((status = 200, body = String, content_type = "text/html"), (status = 404, body = ErrorBody)))]
pub(super) async fn report(
    State(api): State<ApiState>,
    Checked(Path(id)): TransferId,
) -> Result<impl IntoResponse, ApiError> {
    let transfer = blocking(&api.queue, move |queue| queue.transfer(id)).await?;
    let path = api.queue.record(id);
    let drawn = tokio::task::spawn_blocking(move || {
        let records = Record::load_jobs(&path)?;
        let named: Vec<_> = records.into_iter().map(|record| (transfer.ends.name.clone(), record)).collect();
        Ok::<_, longhaul_core::failure::Failure>(draw::html(&figures::of_records(&named)))
    });
    match drawn.await {
        Ok(Ok(page)) => Ok((HEADERS, Html(page))),
        Ok(Err(error)) => {
            let message = format!("transfer {id} has no report: {error}");
            let advice = "records of transfers that ran longest ago are removed; trees have none";
            Err(ApiError::new(StatusCode::NOT_FOUND, "no-report", message, advice))
        }
        Err(_) => Err(ApiError::internal("the report cannot be drawn; please report it")),
    }
}
