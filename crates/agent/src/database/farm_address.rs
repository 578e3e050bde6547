//! The address of a farm's database, its timeouts, and its errors.

use std::fmt;
use std::time::Duration;

use longhaul_core::failure::FailureKind;
use thiserror::Error;
use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, SslMode};
use tokio_postgres::error::SqlState;

use super::password_file::password_of;

/// The maximum timeout for a connection to one host, with the login.
const MAX_CONNECT: Duration = Duration::from_secs(5);
/// The minimum of that timeout, however short the lease is.
const MIN_CONNECT: Duration = Duration::from_secs(1);
/// The maximum timeout for an answer.
const MAX_ANSWER: Duration = Duration::from_secs(15);
/// The idle time before a probe of the connection, the interval of probes, and their number.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(5), 3);
/// The port of PostgreSQL.
const PORT: u16 = 5432;
/// The environment variable of the password, as for psql.
const PASSWORD: &str = "PGPASSWORD";

/// The address of a farm's database: `postgres://USER@HOST/DATABASE`, or several hosts separated by
/// commas, of which the first that can be written to is used.
#[derive(Debug, Clone)]
pub(crate) struct FarmAddress {
    pub(super) servers: Vec<FarmServer>,
    pub(super) timeouts: FarmTimeouts,
    shown: String,
}

/// A host of the address.
#[derive(Debug, Clone)]
pub(super) struct FarmServer {
    pub(super) config: Config,
    /// The host and port.
    pub(super) shown: String,
}

/// The timeouts of a farm's database: within a third of the lease, so that a renewal that fails can
/// be repeated.
#[derive(Debug, Clone, Copy)]
pub(super) struct FarmTimeouts {
    /// For a connection to one host, with the login.
    pub(super) connect: Duration,
    /// For an answer, also of a server that hangs.
    pub(super) answer: Duration,
}

impl FarmTimeouts {
    fn new(lease: Duration, hosts: usize) -> Self {
        let hosts = u32::try_from(hosts).unwrap_or(u32::MAX).max(1);
        let connect = (lease / 3 / hosts).clamp(MIN_CONNECT, MAX_CONNECT);
        Self { connect, answer: (lease / 3).min(MAX_ANSWER) }
    }

    /// Returns the options of a session: the server gives up before the agent does, and says why.
    fn session(&self) -> String {
        let [statement, lock, idle] =
            [self.answer * 2 / 3, self.answer / 3, self.answer].map(|limit| limit.as_millis());
        format!(
            "-c search_path=longhaul -c statement_timeout={statement} -c lock_timeout={lock} \
             -c idle_in_transaction_session_timeout={idle} -c client_min_messages=warning"
        )
    }
}

/// The database of a farm cannot be used.
#[derive(Debug, Clone, Error)]
#[error("{address}: {why}; {remedy}")]
pub struct FarmDatabaseError {
    address: String,
    why: String,
    remedy: String,
    kind: FailureKind,
}

impl FarmDatabaseError {
    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// Adds to the reason, and replaces the remedy.
    pub(super) fn and(self, more: &str, remedy: &str) -> Self {
        Self { why: format!("{}, {more}", self.why), remedy: remedy.to_owned(), ..self }
    }
}

impl fmt::Display for FarmAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.shown)
    }
}

impl FarmAddress {
    /// Parses a URL of PostgreSQL. The password is that of the environment variable PGPASSWORD,
    /// else of `~/.pgpass`.
    ///
    /// # Errors
    /// [`FarmDatabaseError`] for a URL of another kind, with a password, or of a connection with
    /// TLS.
    pub(crate) fn parse(text: &str, lease: Duration) -> Result<Self, FarmDatabaseError> {
        let refused = |why: &str, remedy: &str| FarmDatabaseError {
            address: "the address of the farm".to_owned(),
            why: why.to_owned(),
            remedy: remedy.to_owned(),
            kind: FailureKind::Usage,
        };
        let url = "write it as postgres://USER@HOST/DATABASE";
        if !["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
            return Err(refused("it is no URL of PostgreSQL", url));
        }
        let no_tls = || {
            let remedy = "use a Unix socket, an SSH tunnel or a private network, and neither sslmode nor channel_binding in the address";
            refused("connections to the database have no TLS", remedy)
        };
        // The parser's text may show the password. It accepts disable, prefer and require as
        // sslmode, and no other.
        let config: Config = text.parse().map_err(|error: tokio_postgres::Error| {
            let cause = std::error::Error::source(&error);
            match cause.is_some_and(|cause| cause.to_string().ends_with("`sslmode`")) {
                true => no_tls(),
                false => refused("it cannot be read", url),
            }
        })?;
        if config.get_ssl_mode() == SslMode::Require
            || config.get_channel_binding() == ChannelBinding::Require
        {
            return Err(no_tls());
        }
        if config.get_password().is_some() {
            let remedy = format!("set {PASSWORD}, or write it to ~/.pgpass, instead");
            return Err(refused("a password in it would be shown by ps", &remedy));
        }
        if config.get_hosts().is_empty() {
            return Err(refused("it names no host", url));
        }
        let timeouts = FarmTimeouts::new(lease, config.get_hosts().len());
        let hosts = 0..config.get_hosts().len();
        let servers: Vec<_> = hosts.filter_map(|index| FarmServer::of(&config, index, &timeouts)).collect();
        let names: Vec<_> = servers.iter().map(|server| server.shown.as_str()).collect();
        let user = config.get_user().map_or_else(String::new, |user| format!("{user}@"));
        let shown = format!("postgres://{user}{}/{}", names.join(","), database_of(&config));
        Ok(Self { servers, timeouts, shown })
    }

    /// Creates an error of this database.
    pub(super) fn error(
        &self,
        kind: FailureKind,
        why: impl fmt::Display,
        remedy: impl fmt::Display,
    ) -> FarmDatabaseError {
        FarmDatabaseError {
            address: self.shown.clone(),
            why: why.to_string(),
            remedy: remedy.to_string(),
            kind,
        }
    }

    /// Creates the error of a database that has not answered in time.
    pub(crate) fn silent(&self, waited: Duration) -> FarmDatabaseError {
        let why = format!("it has not answered within {:.1} s", waited.as_secs_f64());
        self.error(FailureKind::Unavailable, why, "see whether it runs and what loads it")
    }

    /// Combines the errors of the hosts: all reasons, and the last remedy.
    pub(super) fn combined(&self, mut failed: Vec<(&FarmServer, FarmDatabaseError)>) -> FarmDatabaseError {
        let [.., (_, last)] = &failed[..] else {
            return self.error(FailureKind::Config, "it names no host", "name one");
        };
        if failed.len() == 1 {
            return failed.remove(0).1;
        }
        let whys: Vec<_> =
            failed.iter().map(|(server, error)| format!("{}: {}", server.shown, error.why)).collect();
        FarmDatabaseError { why: whys.join(", "), ..last.clone() }
    }

    /// Explains an error of the connection or the server.
    pub(super) fn explain(&self, error: &tokio_postgres::Error) -> FarmDatabaseError {
        let Some(server) = error.as_db_error() else {
            let mut why = error.to_string();
            let mut source = std::error::Error::source(error);
            while let Some(cause) = source {
                let cause_text = cause.to_string();
                if !why.contains(&cause_text) {
                    why = format!("{why}: {cause_text}");
                }
                source = cause.source();
            }
            return if why.contains("password missing") {
                let remedy = format!("set {PASSWORD} where the agent starts, or write it to ~/.pgpass");
                self.error(FailureKind::Denied, "it demands a password", remedy)
            } else {
                self.error(FailureKind::Unavailable, why, "see whether it runs, and listens there")
            };
        };
        let (kind, remedy) = match *server.code() {
            SqlState::INVALID_PASSWORD => (
                FailureKind::Denied,
                format!("set the right one in {PASSWORD} where the agent starts, or in ~/.pgpass"),
            ),
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
                let remedy = "permit this user and host, without TLS, in its pg_hba.conf; or use its Unix socket or an SSH tunnel";
                (FailureKind::Denied, remedy.to_owned())
            }
            SqlState::INVALID_CATALOG_NAME => (FailureKind::Config, "make it: createdb".to_owned()),
            SqlState::INSUFFICIENT_PRIVILEGE => {
                let user = self.servers.first().and_then(|server| server.config.get_user());
                let remedy = format!(
                    "give {} the right to create in the database, and to use its schema longhaul",
                    user.unwrap_or("this user")
                );
                (FailureKind::Denied, remedy)
            }
            SqlState::READ_ONLY_SQL_TRANSACTION => return self.read_only(),
            SqlState::DISK_FULL => (FailureKind::Disk, "free space where its data is".to_owned()),
            SqlState::UNIQUE_VIOLATION => {
                (FailureKind::Usage, "another agent has just added it: look at the list".to_owned())
            }
            SqlState::UNDEFINED_TABLE | SqlState::UNDEFINED_COLUMN => (
                FailureKind::Config,
                "its schema longhaul was changed: drop it to begin a new farm".to_owned(),
            ),
            _ => (FailureKind::Unavailable, "its log may say more".to_owned()),
        };
        self.error(kind, server.message(), remedy)
    }

    /// Creates the error of a standby, or of a database whose user may only read.
    pub(super) fn read_only(&self) -> FarmDatabaseError {
        let remedy = "name the server that is written to, not a standby";
        self.error(FailureKind::Config, "it is read-only", remedy)
    }
}

impl FarmServer {
    /// Returns host number `index` of an address.
    fn of(address: &Config, index: usize, timeouts: &FarmTimeouts) -> Option<Self> {
        let ports = address.get_ports();
        let port = ports.get(index).or(ports.first()).map_or(PORT, |port| *port);
        let mut config = Config::new();
        let host = match address.get_hosts().get(index)? {
            Host::Tcp(name) => {
                config.host(name);
                name.clone()
            }
            Host::Unix(path) => {
                config.host_path(path);
                path.display().to_string()
            }
        };
        config.port(port);
        address.get_hostaddrs().get(index).map(|address| config.hostaddr(*address));
        address.get_user().map(|user| config.user(user));
        address.get_dbname().map(|database| config.dbname(database));
        let user = address.get_user().unwrap_or_default();
        let stored = || password_of(&host, port, database_of(address), user);
        let given = std::env::var(PASSWORD).ok().filter(|password| !password.is_empty());
        if let Some(password) = given.or_else(stored) {
            config.password(password);
        }
        let options = address.get_options().map_or_else(String::new, |options| format!("{options} "));
        config.options(format!("{options}{}", timeouts.session()));
        config.application_name("longhaul").ssl_mode(SslMode::Disable);
        // A name may have two addresses, of which one does not answer.
        config.connect_timeout(timeouts.connect / 2).tcp_user_timeout(timeouts.answer);
        config.keepalives_idle(KEEPALIVE.0).keepalives_interval(KEEPALIVE.1).keepalives_retries(KEEPALIVE.2);
        Some(Self { config, shown: format!("{host}:{port}") })
    }
}

fn database_of(config: &Config) -> &str {
    config.get_dbname().or(config.get_user()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_shows_no_password_and_errors_name_the_remedy() {
        let parsed = |text: &str| FarmAddress::parse(text, Duration::from_secs(30));
        for (text, shown) in [
            ("postgres://ann@db/farm", "postgres://ann@db:5432/farm"),
            ("postgresql://ann@%2Frun%2Fpg:5433/farm", "postgres://ann@/run/pg:5433/farm"),
            ("postgres://ann@a:1,b:2/farm", "postgres://ann@a:1,b:2/farm"),
            ("postgres://ann@db/farm?application_name=sslmode=require", "postgres://ann@db:5432/farm"),
        ] {
            assert_eq!(parsed(text).unwrap().to_string(), shown);
        }
        for (text, remedy) in [
            ("mysql://ann@db/farm", "postgres://USER@HOST/DATABASE"),
            ("postgres://ann:secret@db/farm", "set PGPASSWORD"),
            ("postgres://ann@db/farm?password=secret", "~/.pgpass"),
            ("postgres://ann@db/farm?sslmode=require", "SSH tunnel"),
            ("postgres://ann@db/farm?sslmode=verify-full", "SSH tunnel"),
            ("postgres://ann@db/farm?sslmod%65=%72equire", "SSH tunnel"),
            ("postgres://ann@db/farm?channel_binding=require", "SSH tunnel"),
            ("postgres://ann:secret@db:port/farm", "postgres://USER@HOST/DATABASE"),
            ("postgres:///farm", "postgres://USER@HOST/DATABASE"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.to_string().contains(remedy) && !error.to_string().contains("secret"), "{error}");
            assert_eq!(error.kind(), FailureKind::Usage);
        }
    }

    #[test]
    fn waits_for_the_database_end_within_a_third_of_the_lease() {
        for (lease, hosts, connect, answer) in
            [(30, 1, 5, 10), (30, 5, 2, 10), (3, 1, 1, 1), (3600, 2, 5, 15)]
        {
            let timeouts = FarmTimeouts::new(Duration::from_secs(lease), hosts);
            let seconds = [timeouts.connect, timeouts.answer].map(|timeout| timeout.as_secs());
            assert_eq!(seconds, [connect, answer], "lease of {lease} s, {hosts} hosts");
        }
    }
}
