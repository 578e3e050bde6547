//! The slots for connections: applies [`ConnectionAdmission`] to tasks.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::ConnectionLimits;
use crate::admission::connection_admission::{Admitted, ConnectionAdmission, ConnectionId};

/// The slots for open connections, shared fairly by clients.
pub(crate) struct ConnectionSlots {
    started: Instant,
    state: Mutex<SlotsState>,
    /// Slots that exist, those of waiting and evicted connections included.
    existing: watch::Sender<usize>,
}

struct SlotsState {
    admission: ConnectionAdmission,
    signals: HashMap<ConnectionId, Arc<SlotSignals>>,
}

#[derive(Default)]
struct SlotSignals {
    admitted: Notify,
    evicted: Notify,
}

/// A connection's slot, or its place among those that wait for one; freed on drop.
pub(crate) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    id: ConnectionId,
    signals: Arc<SlotSignals>,
    /// Bytes of the reply in progress that the socket has accepted.
    sent: Arc<AtomicU64>,
    open: Arc<()>,
}

/// Whether a connection is still open.
pub(crate) struct ConnectionWatch(Weak<()>);

impl ConnectionWatch {
    pub(crate) fn is_open(&self) -> bool {
        self.0.strong_count() > 0
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.0, &other.0)
    }
}

impl ConnectionSlots {
    /// Allows as many connections as `limits` say.
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        let state = SlotsState { admission: ConnectionAdmission::new(limits), signals: HashMap::new() };
        Self { started: Instant::now(), state: Mutex::new(state), existing: watch::Sender::new(0) }
    }

    /// Takes a slot for a connection from `client`, or a place among those that wait; `None` where
    /// there is neither.
    pub(crate) fn arrive(self: &Arc<Self>, client: IpAddr) -> Option<ConnectionSlot> {
        let (sent, signals) = (Arc::<AtomicU64>::default(), Arc::<SlotSignals>::default());
        let mut state = self.state.lock();
        let (id, admitted) = state.admission.arrive(client.into(), Arc::clone(&sent), self.started.elapsed());
        match admitted {
            Admitted::Never => return None,
            Admitted::Later => {}
            Admitted::Now { evicted } => {
                signals.admitted.notify_one();
                evicted.into_iter().for_each(|evicted| state.evict(evicted));
            }
        }
        state.signals.insert(id, Arc::clone(&signals));
        drop(state);
        self.existing.send_modify(|existing| *existing += 1);
        Some(ConnectionSlot { slots: Arc::clone(self), id, signals, sent, open: Arc::default() })
    }

    /// Waits until every connection has closed.
    pub(crate) async fn drained(&self) {
        // `self` keeps the sender.
        let _ = self.existing.subscribe().wait_for(|existing| *existing == 0).await;
    }

    /// Changes a connection's entry; then gives slots to those that wait, where there are any.
    fn change<T>(&self, change: impl FnOnce(&mut SlotsState) -> T) -> T {
        let mut state = self.state.lock();
        let changed = change(&mut state);
        while let Some((id, evicted)) = state.admission.next(self.started.elapsed()) {
            evicted.into_iter().for_each(|evicted| state.evict(evicted));
            if let Some(signals) = state.signals.get(&id) {
                signals.admitted.notify_one();
            }
        }
        changed
    }
}

impl SlotsState {
    fn evict(&self, id: ConnectionId) {
        if let Some(signals) = self.signals.get(&id) {
            signals.evicted.notify_one();
        }
    }
}

impl ConnectionSlot {
    /// Waits until the connection may be served.
    pub(crate) async fn admitted(&self) {
        self.signals.admitted.notified().await;
    }

    /// Waits until the connection must close, because another one got its slot.
    pub(crate) fn evicted(&self) -> impl Future<Output = ()> + 'static {
        let signals = Arc::clone(&self.signals);
        async move { signals.evicted.notified().await }
    }

    /// Records that the connection waits for a request.
    pub(crate) fn idle(&self) {
        self.slots.change(|state| state.admission.idle(self.id));
    }

    /// Records that the connection answers a request; returns whether it still has its slot.
    pub(crate) fn replying(&self) -> bool {
        let now = self.slots.started.elapsed();
        self.slots.change(|state| state.admission.replying(self.id, now))
    }

    /// Records that the connection receives an upload.
    pub(crate) fn receiving(&self) {
        self.slots.change(|state| state.admission.receiving(self.id));
    }

    /// Returns a handle that outlives the connection and reports whether it is still open.
    pub(crate) fn watch(&self) -> ConnectionWatch {
        ConnectionWatch(Arc::downgrade(&self.open))
    }

    /// Returns the counter of bytes of the reply in progress.
    pub(crate) fn sent(&self) -> &AtomicU64 {
        &self.sent
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.change(|state| {
            state.admission.close(self.id);
            state.signals.remove(&self.id);
        });
        self.slots.existing.send_modify(|existing| *existing -= 1);
    }
}
