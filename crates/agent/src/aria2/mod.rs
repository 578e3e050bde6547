//! aria2's JSON-RPC at `/jsonrpc`, over HTTP and WebSocket.
//!
//! Each call has one of the agent's tokens as its first parameter, `token:TOKEN`. Because the
//! secret is in the body, a page cannot make a browser send it, and calls are accepted from any
//! origin: AriaNg and browser extensions have their own origins.

mod queue_calls;
mod transfer_status;
mod websocket;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use longhaul_core::proto::aria2_rpc::{Call, Incoming, Reply, RpcError, authorize};
use serde_json::Value;

use crate::api::{ApiAccess, ApiState};
use crate::queue::Queue;

/// Returns the routes.
pub(crate) fn routes() -> Router<ApiState> {
    Router::new().route("/jsonrpc", get(websocket::upgrade).post(post).options(preflight))
}

async fn post(State(state): State<ApiState>, body: Bytes) -> Response {
    let answer = answer(&state, body).await;
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, open_to_pages("application/json-rpc"), answer.body).into_response()
}

/// Answers the preflight request of a browser for a page of another origin.
async fn preflight() -> Response {
    (StatusCode::NO_CONTENT, open_to_pages("text/plain")).into_response()
}

fn open_to_pages(kind: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST, OPTIONS"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static("Content-Type"));
    headers
}

/// The answer to a request body.
struct RpcAnswer {
    /// The HTTP status.
    status: u16,
    /// The text.
    body: String,
    /// Whether a call had the token.
    had_token: bool,
}

impl RpcAnswer {
    fn failed(error: RpcError) -> Self {
        let status = error.http_status();
        let reply = Reply { id: Value::Null, result: Err(error) };
        Self { status, body: reply.to_json().to_string(), had_token: false }
    }
}

/// Executes the calls of a body.
async fn answer(state: &ApiState, body: Bytes) -> RpcAnswer {
    let (queue, access) = (Arc::clone(&state.queue), Arc::clone(&state.access));
    let answered = tokio::task::spawn_blocking(move || {
        let mut rpc = Rpc { queue: &queue, access: &access, had_token: false };
        let (status, body) = rpc.answer(&body)?;
        Ok(RpcAnswer { status, body, had_token: rpc.had_token })
    });
    let died = |_| Err(RpcError::Refused("the call failed; please report it".to_owned()));
    answered.await.unwrap_or_else(died).unwrap_or_else(RpcAnswer::failed)
}

/// The context for executing calls.
struct Rpc<'a> {
    queue: &'a Queue,
    access: &'a ApiAccess,
    had_token: bool,
}

impl Rpc<'_> {
    fn answer(&mut self, body: &[u8]) -> Result<(u16, String), RpcError> {
        Ok(match Incoming::parse(body)? {
            Incoming::One(call) => {
                let reply = self.reply(Ok(call));
                let status = reply.result.as_ref().map_or_else(RpcError::http_status, |_| 200);
                (status, reply.to_json().to_string())
            }
            Incoming::Batch(calls) => {
                let replies = calls.into_iter().map(|call| self.reply(call).to_json()).collect();
                (200, Value::Array(replies).to_string())
            }
        })
    }

    fn reply(&mut self, call: Result<Call, RpcError>) -> Reply {
        match call {
            Ok(call) if call.method == "system.multicall" => {
                let id = call.id.clone();
                Reply { id, result: self.multicall(call.params) }
            }
            Ok(call) => Reply { id: call.id.clone(), result: self.single(call) },
            Err(error) => Reply { id: Value::Null, result: Err(error) },
        }
    }

    fn multicall(&mut self, params: Vec<Value>) -> Result<Value, RpcError> {
        let reply = |call: Result<Call, RpcError>| {
            let result = call.and_then(|call| match call.method.as_str() {
                "system.multicall" => {
                    Err(RpcError::Refused("Recursive system.multicall forbidden.".to_owned()))
                }
                _ => self.single(call),
            });
            Reply { id: Value::Null, result }.to_multicall_json()
        };
        Ok(Call::of_multicall(params)?.into_iter().map(reply).collect())
    }

    fn single(&mut self, call: Call) -> Result<Value, RpcError> {
        let authorized = self.access.tokens().map(|(token, scope)| {
            authorize(&call.method, call.params.clone(), token).map(|params| (params, scope))
        });
        let [all, downloads] = authorized;
        let (params, scope) = all.or(downloads)?;
        self.had_token |= !call.method.starts_with("system.");
        queue_calls::execute(self.queue, &call.method, &params, scope)
    }
}
