//! Files that clients put here: PUT, and the parts of uploads that can be resumed (docs/uploads.md).
//!
//! ```text
//!   routes -> Uploads::begin (a blocking thread: token, names, lock, space)
//!                |  refused: the reply goes out before the body comes in
//!                v  100 Continue
//!   transport -> Body -> Upload::receive (a thread of its own) -> engine::sink::pipeline -> file
//!      plain: the socket itself                                      |
//!      TLS:   a pair of sockets                     sync, journal, digest, final name
//! ```

pub(crate) mod abandoned;
mod begin;
mod body;
mod exchange;
mod receive;
mod receiving;
mod refusal;
mod repr_digest;
mod request;
mod token;

use std::sync::Arc;
use std::time::Duration;

use longhaul_engine::sink::memory_budget::{AppBuffer, MemoryBudget};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::Limits;

pub(crate) use exchange::{Received, exchange};
pub(crate) use receiving::{Receiving, Written};
pub use token::{Token, TokenError};

/// What a server that takes files needs for it.
pub(crate) struct Uploads {
    pub(crate) token: Token,
    /// What lies between sockets and files, of all uploads together.
    pub(crate) memory: MemoryBudget,
    /// Places for uploads under way: each has threads and a buffer.
    pub(crate) slots: Arc<Semaphore>,
}

/// How long the disk may take with what has come, once the server has ended every connection.
const LAST_SYNC: Duration = Duration::from_secs(20);

impl Uploads {
    pub(crate) fn new(token: Token, app_buffer: AppBuffer, limits: &Limits) -> Self {
        let slots = Arc::new(Semaphore::new(limits.uploads));
        Self { token, memory: MemoryBudget::new(app_buffer), slots }
    }

    /// Waits until no upload is left, unless the disk takes too long.
    pub(crate) async fn empty(&self, limits: &Limits) {
        let all = u32::try_from(limits.uploads).unwrap_or(u32::MAX);
        if timeout(LAST_SYNC, self.slots.acquire_many(all)).await.is_err() {
            tracing::warn!("uploads are cut off while the disk is busy with them");
        }
    }
}
