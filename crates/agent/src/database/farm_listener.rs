//! Waits for changes that other agents of a farm make.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, NoTls};

use super::farm_address::{CONNECT_TIMEOUT, FarmAddress, FarmError};
use super::{Database, FarmDatabase};

/// The interval at which a connection without notifications is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// The interval between attempts to connect.
const CONNECT_INTERVAL: Duration = Duration::from_secs(2);
/// The minimum interval between two reports of changes to show.
const SHOW_INTERVAL: Duration = Duration::from_secs(1);

/// A change that another agent has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FarmChange {
    /// There may be work, or a run may have to end.
    Work,
    /// The list has changed.
    Show,
}

/// Listens to the notifications of a farm's database on a connection of its own.
pub(crate) struct FarmListener {
    address: FarmAddress,
    /// The process of this agent's own changes.
    own: Arc<AtomicI64>,
}

impl Database {
    /// Returns the listener of the farm, if the agent is in one.
    pub(crate) fn listener(&self) -> Option<FarmListener> {
        let of = |farm: &FarmDatabase| FarmListener { address: farm.address().clone(), own: farm.process() };
        self.farm.as_ref().map(of)
    }
}

impl FarmListener {
    /// Reports changes to `report` for as long as the process lives; reconnects after each loss.
    pub(crate) fn run(&self, report: impl Fn(FarmChange)) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return tracing::error!("cannot listen to the farm {}: {error}", self.address),
        };
        let mut is_logged = false;
        loop {
            let Err(error) = runtime.block_on(self.listen(&report, &mut is_logged));
            if !is_logged {
                tracing::warn!("cannot listen to the farm, and tries again: {error}");
                is_logged = true;
            }
            std::thread::sleep(CONNECT_INTERVAL);
        }
    }

    async fn listen(
        &self,
        report: &impl Fn(FarmChange),
        is_logged: &mut bool,
    ) -> Result<Infallible, FarmError> {
        let failed = |error: tokio_postgres::Error| self.address.explain(&error);
        let silent = |_| self.address.silent(CONNECT_TIMEOUT);
        let connect = timeout(CONNECT_TIMEOUT, self.address.config.connect(NoTls));
        let (client, mut connection) = connect.await.map_err(silent)?.map_err(failed)?;
        let (sender, mut received) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut messages = stream::poll_fn(|context| connection.poll_message(context));
            while let Some(Ok(message)) = messages.next().await {
                if let AsyncMessage::Notification(notification) = message
                    && sender.send(notification).is_err()
                {
                    return;
                }
            }
        });
        let listened = timeout(CONNECT_TIMEOUT, client.batch_execute("LISTEN longhaul"));
        listened.await.map_err(silent)?.map_err(failed)?;
        *is_logged = false;
        // What has changed before is unknown.
        report(FarmChange::Work);
        let mut unshown = Some(Instant::now());
        loop {
            let wait = unshown.map_or(CHECK_INTERVAL, |since| SHOW_INTERVAL.saturating_sub(since.elapsed()));
            match timeout(wait, received.recv()).await {
                Ok(Some(change)) if i64::from(change.process_id()) == self.own.load(Ordering::Relaxed) => {}
                Ok(Some(change)) => {
                    if change.payload() == "work" {
                        report(FarmChange::Work);
                    }
                    unshown = unshown.or_else(|| Some(Instant::now()));
                }
                Err(_) if unshown.take().is_some() => report(FarmChange::Show),
                // A statement tells a lost connection, whose channel is closed, from an idle one.
                Ok(None) | Err(_) => {
                    let checked = timeout(CONNECT_TIMEOUT, client.batch_execute("SELECT 1"));
                    checked.await.map_err(silent)?.map_err(failed)?;
                }
            }
        }
    }
}
