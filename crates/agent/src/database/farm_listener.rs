//! Waits for changes that other agents of a farm make.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::timeout;
use tokio_postgres::{Client, Notification};

use super::farm_address::{FarmAddress, FarmDatabaseError};
use super::farm_connection::connect;
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
            let Err(error) = self.listen(&runtime, &report, &mut is_logged);
            if !is_logged {
                tracing::warn!("cannot listen to the farm, and tries again: {error}");
                is_logged = true;
            }
            std::thread::sleep(CONNECT_INTERVAL);
        }
    }

    /// Listens until the connection is lost.
    fn listen(
        &self,
        runtime: &Runtime,
        report: &impl Fn(FarmChange),
        is_logged: &mut bool,
    ) -> Result<Infallible, FarmDatabaseError> {
        let mut listening = runtime.block_on(self.connect())?;
        *is_logged = false;
        // What has changed before is unknown.
        report(FarmChange::Work);
        loop {
            // Reported outside of the runtime: a report may wait for the database.
            if let Some(change) = runtime.block_on(listening.next(self))? {
                report(change);
            }
        }
    }

    async fn connect(&self) -> Result<Listening, FarmDatabaseError> {
        let (sender, received) = mpsc::unbounded_channel();
        let (client, _) = connect(&self.address, Some(sender)).await?;
        let listening = Listening { client, received, unshown: Some(Instant::now()) };
        listening.run("LISTEN longhaul", &self.address).await?;
        Ok(listening)
    }
}

/// A connection that receives notifications.
struct Listening {
    client: Client,
    received: UnboundedReceiver<Notification>,
    /// The time of the first change that is not reported to be shown.
    unshown: Option<Instant>,
}

impl Listening {
    /// Waits for a change, or for the time to check the connection.
    async fn next(&mut self, listener: &FarmListener) -> Result<Option<FarmChange>, FarmDatabaseError> {
        let left = |since: Instant| SHOW_INTERVAL.saturating_sub(since.elapsed());
        let wait = self.unshown.map_or(CHECK_INTERVAL, left);
        match timeout(wait, self.received.recv()).await {
            Ok(Some(change)) if i64::from(change.process_id()) == listener.own.load(Ordering::Relaxed) => {}
            Ok(Some(change)) => {
                self.unshown = self.unshown.or_else(|| Some(Instant::now()));
                return Ok((change.payload() == "work").then_some(FarmChange::Work));
            }
            Err(_) if self.unshown.take().is_some() => return Ok(Some(FarmChange::Show)),
            // A statement distinguishes a lost connection, whose channel is closed, from an idle
            // one.
            Ok(None) | Err(_) => self.run("SELECT 1", &listener.address).await?,
        }
        Ok(None)
    }

    async fn run(&self, statement: &str, address: &FarmAddress) -> Result<(), FarmDatabaseError> {
        let limit = address.timeouts.answer;
        let done = timeout(limit, self.client.batch_execute(statement)).await;
        done.map_err(|_| address.silent(limit))?.map_err(|error| address.explain(&error))
    }
}
