//! Server-sent events: changes of transfers.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::response::Sse;
use axum::response::sse::{Event, KeepAlive};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use utoipa::IntoParams;

use super::ApiState;
use super::extract::Checked;
use crate::events::{AgentEvent, STOPPING, TRANSFER};
use crate::live::Live;
use crate::queue::Queue;

/// The interval of `alive` events on an idle connection: without them, a frozen agent would look
/// idle.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The events to receive.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// The transfer whose samples are sent too; while watched, it is sampled every 10 ms.
    samples: Option<i64>,
}

/// A client that receives events.
struct EventSubscriber {
    queue: Arc<Queue>,
    events: Receiver<AgentEvent>,
    /// The watched transfer, and its run if running.
    samples: Option<(i64, Option<WatchGuard>)>,
    /// An event not yet sent.
    first: Option<Event>,
}

/// Increases the sampling rate of a run until dropped.
struct WatchGuard(Arc<Live>);

impl WatchGuard {
    fn new(live: Arc<Live>) -> Self {
        live.watch();
        Self(live)
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.0.unwatch();
    }
}

/// Sends changes: `transfer` (a Transfer), `progress`, `removed`, `stats`, `samples`; `resync` if
/// the client was too slow, or transfers have changed without messages of their own; `alive` every
/// 5 s without another event.
#[utoipa::path(get, path = "/api/v1/events", tag = "agent", params(EventsQuery),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
pub(super) async fn listen(
    State(api): State<ApiState>,
    Checked(Query(query)): Checked<Query<EventsQuery>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let events = api.queue.events.subscribe();
    let mut subscriber = EventSubscriber {
        queue: api.queue,
        events,
        samples: query.samples.map(|id| (id, None)),
        first: None,
    };
    subscriber.watch();
    let stats = super::blocking(&subscriber.queue, Queue::stats).await;
    subscriber.first = stats.ok().map(|stats| Event::default().event("stats").data(crate::json(&stats)));
    let stream = stream::unfold(subscriber, |mut subscriber| async move {
        let event = subscriber.next().await?;
        Some((Ok(event), subscriber))
    });
    let alive = Event::default().event("alive").data("{}");
    Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE).event(alive))
}

impl EventSubscriber {
    /// Returns the next event; `None` when the agent stops.
    async fn next(&mut self) -> Option<Event> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        loop {
            let (name, data) = match self.events.recv().await {
                Ok(AgentEvent { name: STOPPING, .. }) | Err(RecvError::Closed) => return None,
                Ok(AgentEvent { of: Some(id), .. })
                    if self.samples.as_ref().is_none_or(|(of, _)| *of != id) =>
                {
                    continue;
                }
                Ok(AgentEvent { name, data, .. }) => (name, data),
                Err(RecvError::Lagged(_)) => ("resync", "{}".into()),
            };
            if name == TRANSFER {
                self.watch();
            }
            return Some(Event::default().event(name).data(&*data));
        }
    }

    /// Watches the transfer's current run, if any.
    fn watch(&mut self) {
        let Some((id, watched)) = &mut self.samples else { return };
        let live = self.queue.runs.get(*id);
        let same = match (&live, &*watched) {
            (Some(live), Some(watched)) => Arc::ptr_eq(live, &watched.0),
            (None, None) => true,
            _ => false,
        };
        if !same {
            *watched = live.map(WatchGuard::new);
        }
    }
}
