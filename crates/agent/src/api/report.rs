//! The report of a transfer, drawn from its record.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Html;
use longhaul_scope::record::Record;
use longhaul_scope::{draw, figures};

use super::error::ErrorBody;
use super::{ApiError, ApiState, blocking};

/// Returns the report of a transfer's last run, as `longhaul report` draws it.
#[utoipa::path(get, path = "/api/v1/transfers/{id}/report", tag = "transfers", params(("id" = i64, Path)),
    responses((status = 200, body = String, content_type = "text/html"), (status = 404, body = ErrorBody)))]
pub(super) async fn report(
    State(api): State<ApiState>,
    Path(id): Path<i64>,
) -> Result<Html<String>, ApiError> {
    let transfer = blocking(&api.queue, move |queue| queue.transfer(id)).await?;
    let path = api.queue.paths.record(id);
    let drawn = tokio::task::spawn_blocking(move || {
        let records = Record::load_jobs(&path)?;
        let named: Vec<_> = records.into_iter().map(|record| (transfer.name.clone(), record)).collect();
        Ok::<_, longhaul_scope::record::RecordError>(draw::html(&figures::of_records(&named)))
    });
    match drawn.await {
        Ok(Ok(page)) => Ok(Html(page)),
        Ok(Err(error)) => {
            let message = format!("transfer {id} has no report: {error}");
            let advice = "records of transfers that ran longest ago are removed; trees have none";
            Err(ApiError::new(StatusCode::NOT_FOUND, "no-report", message, advice))
        }
        Err(_) => Err(ApiError::internal("the report cannot be drawn; please report it")),
    }
}
