//! Calls over a WebSocket, and its notifications.

use std::collections::HashMap;

use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::HeaderMap;
use axum::response::Response;
use longhaul_core::proto::aria2_rpc::notification;
use tokio::sync::broadcast::error::RecvError;

use super::{answer, transfer_status};
use crate::api::ApiState;
use crate::events::{AgentEvent, STOPPING, TRANSFER};
use crate::transfer::{Transfer, TransferState};

/// The maximum message size: a Metalink of 16 MiB in Base64, and its call.
const MAX_MESSAGE: usize = 24 << 20;

pub(super) async fn upgrade(
    State(state): State<ApiState>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let is_trusted = state.access.has_no_foreign_origin(&headers);
    let serve = move |socket| RpcConnection::new(state, is_trusted).serve(socket);
    upgrade.max_message_size(MAX_MESSAGE).on_upgrade(serve)
}

/// A client's connection.
struct RpcConnection {
    state: ApiState,
    /// Whether the client receives notifications: any program does, because aria2p only listens,
    /// but a page of another origin only after a call with the token.
    is_trusted: bool,
    /// The states that the client was notified of. For an unknown transfer each message counts as a
    /// change, because clients query the state after a notification, so that a superfluous one is
    /// harmless.
    known: HashMap<i64, TransferState>,
}

impl RpcConnection {
    fn new(state: ApiState, is_trusted: bool) -> Self {
        Self { state, is_trusted, known: HashMap::new() }
    }

    async fn serve(mut self, mut socket: WebSocket) {
        let mut events = self.state.queue.events.subscribe();
        loop {
            let text = tokio::select! {
                received = socket.recv() => match received {
                    Some(Ok(Message::Text(call))) => Some(self.call(call.as_str().to_owned().into()).await),
                    Some(Ok(Message::Binary(call))) => Some(self.call(call).await),
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => None,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                },
                event = events.recv() => match event {
                    Ok(AgentEvent { name: TRANSFER, data, .. }) if self.is_trusted => self.news(&data),
                    Ok(AgentEvent { name: STOPPING, .. }) | Err(RecvError::Closed) => return,
                    Ok(_) | Err(RecvError::Lagged(_)) => None,
                },
            };
            if let Some(text) = text
                && socket.send(Message::Text(text.into())).await.is_err()
            {
                return;
            }
        }
    }

    async fn call(&mut self, body: axum::body::Bytes) -> String {
        let answer = answer(&self.state, body).await;
        self.is_trusted |= answer.had_token;
        answer.body
    }

    /// Returns the notification of a state change.
    fn news(&mut self, transfer: &str) -> Option<String> {
        let transfer: Transfer = serde_json::from_str(transfer).ok()?;
        let before = self.known.insert(transfer.id, transfer.state);
        let method = match transfer.state {
            state if before == Some(state) => return None,
            TransferState::Running => "aria2.onDownloadStart",
            TransferState::Paused => "aria2.onDownloadPause",
            TransferState::Cancelled => "aria2.onDownloadStop",
            TransferState::Done => "aria2.onDownloadComplete",
            TransferState::Failed | TransferState::WaitingLink => "aria2.onDownloadError",
            TransferState::Queued | TransferState::Scheduled => return None,
        };
        Some(notification(method, transfer_status::gid(&transfer)).to_string())
    }
}
