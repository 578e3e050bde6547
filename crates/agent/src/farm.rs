//! The farm of an agent: a queue in PostgreSQL that agents of many hosts share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use longhaul_farm::boot_clock::since_boot;
use parking_lot::Mutex;
use rustix::thread::{NanosleepRelativeResult, clock_nanosleep_relative};
use rustix::time::{ClockId, Timespec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::database::{Database, FarmAddress, FarmDatabase, HeldTransfer};
use crate::error::{AgentError, QueueError};
use crate::live::Live;
use crate::paths::{self, AgentPaths};
use crate::queue::{Queue, unix_now};
use crate::secrets::SecretBox;
use crate::settings::FarmSettings;
use crate::transfer::Transfer;

/// The state of the agent in its farm.
#[derive(Debug)]
pub(crate) struct Farm {
    address: String,
    /// The name of this host.
    host: String,
    /// The time after which the transfers of an agent are given to others.
    pub(crate) lease: Duration,
    /// The seconds by which the database's clock is ahead of this host's.
    clock_offset: AtomicI64,
    /// The time since boot at which the leases were last renewed, before the first renewal that of
    /// the start.
    renewed: Mutex<Duration>,
}

/// The farm of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FarmStatus {
    /// The address of the database.
    pub database: String,
    /// The time after which the transfers of an agent that does not report are given to others, in
    /// seconds.
    pub lease_seconds: u64,
    /// The agents that have reported within a day.
    pub hosts: Vec<FarmHost>,
}

/// An agent of a farm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FarmHost {
    /// The host's name.
    pub name: String,
    /// The program's version.
    pub version: String,
    /// The seconds since its last report.
    pub seen_seconds: u64,
    /// Whether it has reported within a lease.
    pub is_alive: bool,
    /// The number of its running transfers.
    pub running: u64,
    /// The sum of their rates in bits per second.
    pub goodput_bps: u64,
    /// The bytes moved since its start.
    pub moved_bytes: u64,
}

impl Farm {
    /// Connects to the farm; `database` has its transfers from then on.
    ///
    /// # Errors
    /// [`AgentError`].
    pub(crate) fn join(
        database: &mut Database,
        settings: &FarmSettings,
        paths: &AgentPaths,
    ) -> Result<(Self, SecretBox), AgentError> {
        let lease = Duration::from_secs(settings.lease_seconds);
        let address = FarmAddress::parse(&settings.url, lease).map_err(AgentError::Farm)?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let owner = format!("{host}/{}", database.agent_name()?);
        let (farm, secrets) = FarmDatabase::open(&address, owner, &paths.state.join(paths::FARM_KEY))?;
        database.join(farm);
        let farm = Self::new(address.to_string(), host, lease);
        farm.set_clock(database.report_host(0, 0, 0)?);
        Ok((farm, secrets))
    }

    pub(crate) fn new(address: String, host: String, lease: Duration) -> Self {
        Self { address, host, lease, clock_offset: AtomicI64::new(0), renewed: Mutex::new(since_boot()) }
    }

    /// Returns the interval at which leases are renewed.
    pub(crate) fn interval(&self) -> Duration {
        self.lease / 3
    }

    /// Sets the clock by the database's time, in milliseconds since 1970.
    fn set_clock(&self, now: i64) {
        self.clock_offset.store((now / 1000).saturating_sub(unix_now()), Ordering::Relaxed);
    }

    /// Returns the time until leases must be renewed.
    pub(crate) fn until_renewal(&self) -> Duration {
        self.interval().saturating_sub(self.since_renewal())
    }

    /// Returns the time until runs must end if their leases are not renewed: a tenth of the lease
    /// before it expires, in which they do.
    pub(crate) fn until_end(&self) -> Duration {
        (self.lease * 9 / 10).saturating_sub(self.since_renewal())
    }

    fn since_renewal(&self) -> Duration {
        since_boot().saturating_sub(*self.renewed.lock())
    }
}

/// Sleeps for this time, in which a suspension counts where the kernel supports that, or until a
/// signal.
pub(crate) fn sleep_since_boot(time: Duration) {
    let slept = Timespec::try_from(time).map(|time| clock_nanosleep_relative(ClockId::Boottime, &time));
    if !matches!(slept, Ok(NanosleepRelativeResult::Ok | NanosleepRelativeResult::Interrupted(_))) {
        std::thread::sleep(time);
    }
}

/// Checks the address of a farm's database, without a connection.
///
/// # Errors
/// [`AgentError::Farm`].
pub fn check_address(url: &str) -> Result<(), AgentError> {
    FarmAddress::parse(url, Duration::MAX).map(drop).map_err(AgentError::Farm)
}

impl Queue {
    /// Returns the seconds since 1970, of the database's clock in a farm, whose hosts may differ.
    pub(crate) fn now(&self) -> i64 {
        let offset = self.farm.as_ref().map_or(0, |farm| farm.clock_offset.load(Ordering::Relaxed));
        unix_now().saturating_add(offset)
    }

    /// Returns the directory of records: the numbers of a farm's transfers are others than the
    /// agent's own.
    pub(crate) fn records(&self) -> PathBuf {
        if self.farm.is_some() {
            self.paths.state.join(paths::FARM_RECORDS)
        } else {
            self.paths.state.join(paths::RECORDS)
        }
    }

    /// Returns the path of a transfer's record.
    pub(crate) fn record(&self, id: i64) -> PathBuf {
        self.records().join(format!("{id}.jsonl"))
    }

    /// Returns the farm; `None` if the agent is in none.
    ///
    /// # Errors
    /// [`QueueError::Database`].
    pub fn farm_status(&self) -> Result<Option<FarmStatus>, QueueError> {
        let Some(farm) = &self.farm else { return Ok(None) };
        let hosts = self.database(|database| database.hosts(farm.lease))?;
        let lease_seconds = farm.lease.as_secs();
        Ok(Some(FarmStatus { database: farm.address.clone(), lease_seconds, hosts }))
    }

    /// Returns the host that has run a transfer last, if it is another one.
    pub(crate) fn other_host<'a>(&self, transfer: &'a Transfer) -> Option<&'a str> {
        let farm = self.farm.as_ref()?;
        transfer.conditions.host.as_deref().filter(|host| *host != farm.host)
    }

    /// Renews the leases of this agent; returns them.
    pub(crate) fn renew_leases(&self, farm: &Farm) -> Result<Vec<HeldTransfer>, QueueError> {
        // A renewal holds from its beginning, however long the database takes.
        let began = since_boot();
        let held = self.database(|database| database.renew(farm.lease))?;
        *farm.renewed.lock() = began;
        Ok(held)
    }

    /// Reports this agent and the progress of its runs to the farm, and gives the expired leases of
    /// others back to the queue.
    pub(crate) fn report_to_farm(&self, farm: &Farm) -> Result<(), QueueError> {
        let live = self.runs.all();
        let goodput = live.iter().map(|live| live.goodput()).sum();
        let moved = self.runs.moved.load(Ordering::Relaxed);
        let now = self.database(|database| {
            let store = |live: &Arc<Live>| database.store_progress((live.id, live.epoch), &live.progress());
            live.iter().try_for_each(store)?;
            database.expire()?;
            database.report_host(live.len(), goodput, moved)
        })?;
        farm.set_clock(now);
        Ok(())
    }
}
