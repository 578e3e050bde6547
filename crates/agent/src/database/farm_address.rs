//! The address of a farm's database, and its errors.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use longhaul_core::failure::FailureKind;
use thiserror::Error;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::error::{Severity, SqlState};

/// The timeout for a connection, with the login.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The limits of one statement, in the server and for an answer of a server that hangs.
const SESSION: &str = "-c search_path=longhaul -c statement_timeout=10s -c lock_timeout=5s \
                       -c idle_in_transaction_session_timeout=15s -c client_min_messages=warning";
/// The idle time before a probe of the connection, the interval of probes, and their number.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(5), 3);
/// The environment variable of the password, as for psql.
const PASSWORD: &str = "PGPASSWORD";

/// The address of a farm's database: `postgres://USER@HOST/DATABASE`.
#[derive(Debug, Clone)]
pub(crate) struct FarmAddress {
    pub(super) config: Config,
    shown: String,
}

/// The database of a farm cannot be used.
#[derive(Debug, Clone, Error)]
#[error("{address}: {why}; {remedy}")]
pub struct FarmError {
    address: String,
    why: String,
    remedy: String,
    kind: FailureKind,
}

impl FarmError {
    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }
}

impl FromStr for FarmAddress {
    type Err = FarmError;

    /// Parses a URL of PostgreSQL, with the password of the environment variable PGPASSWORD.
    fn from_str(text: &str) -> Result<Self, FarmError> {
        let refused = |why: &str, remedy: &str| FarmError {
            address: "the address of the farm".to_owned(),
            why: why.to_owned(),
            remedy: remedy.to_owned(),
            kind: FailureKind::Usage,
        };
        let url = "write it as postgres://USER@HOST/DATABASE";
        if !["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
            return Err(refused("it is no URL of PostgreSQL", url));
        }
        if ["sslmode=require", "sslmode=verify"].iter().any(|mode| text.contains(mode)) {
            let remedy =
                "use a Unix socket, an SSH tunnel or a private network, and no sslmode in the address";
            return Err(refused("connections to the database have no TLS", remedy));
        }
        // The parser's text may show the password.
        let mut config: Config = text.parse().map_err(|_| refused("it cannot be read", url))?;
        if config.get_password().is_some() {
            let remedy = format!("set {PASSWORD} instead");
            return Err(refused("a password in it would be shown by ps", &remedy));
        }
        if config.get_hosts().is_empty() {
            return Err(refused("it names no host", url));
        }
        if let Ok(password) = std::env::var(PASSWORD) {
            config.password(password);
        }
        let options = config.get_options().map_or_else(String::new, |options| format!("{options} "));
        config.options(format!("{options}{SESSION}")).application_name("longhaul").ssl_mode(SslMode::Disable);
        config.connect_timeout(CONNECT_TIMEOUT).tcp_user_timeout(CONNECT_TIMEOUT * 2);
        config.keepalives_idle(KEEPALIVE.0).keepalives_interval(KEEPALIVE.1).keepalives_retries(KEEPALIVE.2);
        let shown = shown(&config);
        Ok(Self { config, shown })
    }
}

impl fmt::Display for FarmAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.shown)
    }
}

/// Returns the address without the password.
fn shown(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |index: usize| ports.get(index).or(ports.first()).map_or(5432, |port| *port);
    let hosts = config.get_hosts().iter().enumerate().map(|(index, host)| match host {
        Host::Tcp(name) => format!("{name}:{}", port(index)),
        Host::Unix(path) => format!("{}:{}", path.display(), port(index)),
    });
    let user = config.get_user().map_or_else(String::new, |user| format!("{user}@"));
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("postgres://{user}{}/{database}", hosts.collect::<Vec<_>>().join(","))
}

impl FarmAddress {
    /// Creates an error of this database.
    pub(super) fn error(
        &self,
        kind: FailureKind,
        why: impl fmt::Display,
        remedy: impl fmt::Display,
    ) -> FarmError {
        FarmError { address: self.shown.clone(), why: why.to_string(), remedy: remedy.to_string(), kind }
    }

    /// Creates the error of a database that has not answered in time.
    pub(super) fn silent(&self, waited: Duration) -> FarmError {
        let why = format!("it has not answered within {} s", waited.as_secs());
        self.error(FailureKind::Unavailable, why, "see whether it runs and what loads it")
    }

    /// Explains an error of the connection or the server.
    pub(super) fn explain(&self, error: &tokio_postgres::Error) -> FarmError {
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
                let why = "it demands a password";
                self.error(FailureKind::Denied, why, format!("set {PASSWORD} where the agent starts"))
            } else {
                self.error(FailureKind::Unavailable, why, "see whether it runs, and listens there")
            };
        };
        let (kind, remedy) = match *server.code() {
            SqlState::INVALID_PASSWORD => {
                (FailureKind::Denied, "set the right one in PGPASSWORD where the agent starts".to_owned())
            }
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
                let remedy = "permit this user and host, without TLS, in its pg_hba.conf; or use its Unix socket or an SSH tunnel";
                (FailureKind::Denied, remedy.to_owned())
            }
            SqlState::INVALID_CATALOG_NAME => (FailureKind::Config, "make it: createdb".to_owned()),
            SqlState::INSUFFICIENT_PRIVILEGE => {
                let user = self.config.get_user().unwrap_or("this user");
                let remedy = format!(
                    "give {user} the right to create in the database, and to use its schema longhaul"
                );
                (FailureKind::Denied, remedy)
            }
            SqlState::READ_ONLY_SQL_TRANSACTION => {
                (FailureKind::Config, "name the server that is written to, not a standby".to_owned())
            }
            SqlState::DISK_FULL => (FailureKind::Disk, "free space where its data is".to_owned()),
            SqlState::UNDEFINED_TABLE | SqlState::UNDEFINED_COLUMN => (
                FailureKind::Config,
                "its schema longhaul was changed: drop it to begin a new farm".to_owned(),
            ),
            _ => (FailureKind::Unavailable, "its log may say more".to_owned()),
        };
        self.error(kind, server.message(), remedy)
    }
}

/// Returns whether a connection is of no use after this error.
pub(super) fn has_ended(error: &tokio_postgres::Error) -> bool {
    let severity = error.as_db_error().map(|error| error.parsed_severity());
    severity.is_none_or(|severity| severity != Some(Severity::Error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_shows_no_password_and_errors_name_the_remedy() {
        let shown = |text: &str| text.parse::<FarmAddress>().map(|address| address.to_string());
        assert_eq!(shown("postgres://ann@db/farm").unwrap(), "postgres://ann@db:5432/farm");
        let socket = shown("postgresql://ann@%2Frun%2Fpg:5433/farm").unwrap();
        assert_eq!(socket, "postgres://ann@/run/pg:5433/farm");
        for (text, remedy) in [
            ("mysql://ann@db/farm", "postgres://USER@HOST/DATABASE"),
            ("postgres://ann:secret@db/farm", "set PGPASSWORD instead"),
            ("postgres://ann@db/farm?password=secret", "set PGPASSWORD instead"),
            ("postgres://ann@db/farm?sslmode=require", "SSH tunnel"),
            ("postgres://ann@db/farm?sslmode=verify-full", "SSH tunnel"),
            ("postgres://ann:secret@db:port/farm", "postgres://USER@HOST/DATABASE"),
            ("postgres:///farm", "postgres://USER@HOST/DATABASE"),
        ] {
            let error = shown(text).unwrap_err();
            assert!(error.to_string().contains(remedy) && !error.to_string().contains("secret"), "{error}");
            assert_eq!(error.kind(), FailureKind::Usage);
        }
    }
}
