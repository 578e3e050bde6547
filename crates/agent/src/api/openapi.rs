//! The API's description, generated from the handlers.

use std::collections::BTreeMap;

use axum::Json;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AdditionalProperties, Object, Schema};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{OpenApi, ToSchema};

use super::{auth, events, metrics, report, settings, transfers};
use crate::request::{AccessOptions, Endpoints, QueueOptions, TargetFile, TransferRequest, TuningOptions};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Longhaul agent",
        description = "A queue of transfers. On the Unix socket no token is needed. The token in download.token permits downloads to new files \
                       below the directory of the settings, and control of the queue; the cookie of a page permits all but uploads and plans."
    ),
    paths(
        transfers::list,
        transfers::add,
        transfers::offer,
        transfers::connect,
        transfers::show,
        transfers::remove,
        transfers::patch,
        transfers::pause,
        transfers::resume,
        transfers::cancel,
        transfers::retry,
        transfers::refresh,
        transfers::place,
        transfers::samples,
        report::report,
        settings::show,
        settings::patch,
        settings::stats,
        settings::farm,
        events::listen,
        metrics::metrics,
        auth::login_url,
        document
    )
)]
struct ApiDescription;

/// Returns the description.
pub(super) fn description() -> utoipa::openapi::OpenApi {
    let mut description = ApiDescription::openapi();
    let components = description.components.get_or_insert_default();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("token", SecurityScheme::Http(bearer));
    let cookie = ApiKey::Cookie(ApiKeyValue::new("longhaul_session"));
    components.add_security_scheme("session", SecurityScheme::ApiKey(cookie));
    flatten_request(&mut components.schemas);
    description
}

/// Describes a request as the one object that it is in JSON: `allOf` its groups could not refuse
/// other fields.
fn flatten_request(schemas: &mut BTreeMap<String, RefOr<Schema>>) {
    let Some(RefOr::T(Schema::AllOf(request))) = schemas.remove(&*TransferRequest::name()) else { return };
    let groups = [
        Endpoints::name(),
        TargetFile::name(),
        AccessOptions::name(),
        TuningOptions::name(),
        QueueOptions::name(),
    ];
    let groups = groups.map(|name| schemas.remove(&*name));
    let mut object = Object::new();
    for part in groups.into_iter().flatten().chain(request.items) {
        if let RefOr::T(Schema::Object(part)) = part {
            object.properties.extend(part.properties);
        }
    }
    object.description = request.description;
    object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
    schemas.insert(TransferRequest::name().into_owned(), object.into());
}

/// Returns this description.
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "agent", responses((status = 200, body = serde_json::Value)))]
pub(super) async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(description())
}
