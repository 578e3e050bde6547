//! Connects to the first host of a farm's address that can be written to.

use futures_util::stream::{self, StreamExt};
use longhaul_core::failure::FailureKind;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::timeout;
use tokio_postgres::error::Severity;
use tokio_postgres::{AsyncMessage, Client, NoTls, Notification};

use super::farm_address::{FarmAddress, FarmDatabaseError, FarmServer};

/// The first version with generated columns.
const MIN_VERSION: u32 = 12;

/// Connects to the hosts in their order; returns the client, and the number of the server's process
/// for it. Sends what the server notifies to `notified`, which is closed with the connection.
///
/// # Errors
/// [`FarmDatabaseError`] with the reason of each host.
pub(super) async fn connect(
    address: &FarmAddress,
    notified: Option<UnboundedSender<Notification>>,
) -> Result<(Client, i64), FarmDatabaseError> {
    let limit = address.timeouts.connect;
    let mut failed = Vec::new();
    for server in &address.servers {
        match timeout(limit, connect_to(server, address, notified.clone())).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(error)) => failed.push((server, error)),
            Err(_) => failed.push((server, address.silent(limit))),
        }
    }
    Err(address.combined(failed))
}

async fn connect_to(
    server: &FarmServer,
    address: &FarmAddress,
    notified: Option<UnboundedSender<Notification>>,
) -> Result<(Client, i64), FarmDatabaseError> {
    let failed = |error: tokio_postgres::Error| address.explain(&error);
    let (client, mut connection) = server.config.connect(NoTls).await.map_err(failed)?;
    let version = connection.parameter("server_version").unwrap_or_default().to_owned();
    let digits = version.split(|next: char| !next.is_ascii_digit()).next().unwrap_or_default();
    if digits.parse().is_ok_and(|major: u32| major < MIN_VERSION) {
        let remedy = format!("use version {MIN_VERSION} or a later one");
        return Err(address.error(FailureKind::Config, format!("it is PostgreSQL {version}"), remedy));
    }
    // Ends with the client; an error is that of the statement under way.
    tokio::spawn(async move {
        let mut messages = stream::poll_fn(|context| connection.poll_message(context));
        while let Some(Ok(message)) = messages.next().await {
            if let (AsyncMessage::Notification(notification), Some(notified)) = (message, &notified) {
                // Fails only once the listener has dropped the client.
                let _ = notified.send(notification);
            }
        }
    });
    let select = "SELECT pg_backend_pid(), current_setting('transaction_read_only')";
    let row = client.query_one(select, &[]).await.map_err(failed)?;
    let process: i32 = row.try_get(0).map_err(failed)?;
    if row.try_get::<_, &str>(1).map_err(failed)? == "on" {
        return Err(address.read_only());
    }
    Ok((client, process.into()))
}

/// Returns whether a connection is of no use after this error.
pub(super) fn has_ended(error: &tokio_postgres::Error) -> bool {
    let severity = error.as_db_error().map(|error| error.parsed_severity());
    severity.is_none_or(|severity| severity != Some(Severity::Error))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    /// Listens as a server of a version, which answers the login and nothing else.
    fn server(version: &'static str) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let _ = client.read(&mut [0; 1024]).unwrap();
            let parameter = format!("server_version\0{version}\0");
            let length = u32::try_from(parameter.len() + 4).unwrap().to_be_bytes();
            // AuthenticationOk, ParameterStatus, ReadyForQuery (PostgreSQL 17, section 53.7).
            let answer = [b"R\0\0\0\x08\0\0\0\0S", &length[..], parameter.as_bytes(), b"Z\0\0\0\x05I"];
            client.write_all(&answer.concat()).unwrap();
            // Until the client ends the connection.
            let _ = client.read(&mut [0]);
        });
        port
    }

    #[test]
    fn hosts_are_tried_in_turn_and_old_or_silent_ones_named() {
        // The kernel accepts connections, and nothing answers.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (silent, old) = (listener.local_addr().unwrap().port(), server("11.22 (Debian)"));
        let hosts = format!("127.0.0.1:{silent},127.0.0.1:{old}");
        let url = format!("postgres://ann@{hosts}/farm");
        let address = FarmAddress::parse(&url, Duration::from_secs(3)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(connect(&address, None)).map(drop).unwrap_err();
        let said = error.to_string();
        for part in [
            format!("127.0.0.1:{silent}: it has not answered within 1.0 s"),
            format!("127.0.0.1:{old}: it is PostgreSQL 11.22 (Debian)"),
            "use version 12 or a later one".to_owned(),
        ] {
            assert!(said.contains(&part), "{said}");
        }
        assert_eq!(error.kind(), FailureKind::Config);
    }
}
