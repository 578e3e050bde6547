//! The security required by the scheme of a URL: TLS for ftps://, GSI for gsiftp://, and encrypted
//! data connections.
//!
//! | URL | control connection | data connections |
//! |---|---|---|
//! | `ftp://` | clear | clear |
//! | `ftps://` | TLS | TLS (PROT P) |
//! | `gsiftp://` | GSI | clear (DCAU N); TLS if requested by the user (DCSC P, DCAU A, PROT P) |
//!
//! No scheme falls back to another: if the server does not encrypt as required, the transfer fails.

use std::time::SystemTime;

use longhaul_core::failure::{Failure, FailureKind};
use longhaul_core::proto::gridftp::{Command, Reply};
use url::Host;

use super::control::ControlConnection;
use super::data_protection::{DataProtection, FtpsClient};
use super::error::FtpError;
use super::gsi::{self, ControlSecurity, CredentialPlaces, GsiCredentials, Trust};
use super::login::ServerAccess;
use super::remote_address::Scheme;
use crate::connect::Deadline;
use crate::source::http::{server_name, tls_settings};

/// The protected buffer size (PBSZ) with GSI, which Globus requires but does not use.
const GSI_BUFFER: u32 = 1 << 20;

/// Fails without valid credentials of the user, before anything is sent.
pub(super) fn check_credentials() -> Result<(), FtpError> {
    GsiCredentials::find(&CredentialPlaces::from_env(), SystemTime::now())?;
    Ok(())
}

/// Authenticates with the user's credentials and the trusted authorities of this host.
pub(super) fn authenticate(
    exchange: &mut dyn FnMut(&Command<'_>) -> Result<Reply, FtpError>,
    host: &Host<String>,
) -> Result<ControlSecurity, FtpError> {
    let now = SystemTime::now();
    let (credentials, trust) =
        (GsiCredentials::find(&CredentialPlaces::from_env(), now)?, Trust::from_env(now)?);
    gsi::authenticate(exchange, host, &credentials, trust, now)
}

/// Requests TLS, verifies the server, and requests data connections within TLS (RFC 4217).
pub(super) fn begin_tls(
    access: &ServerAccess<'_>,
    mut control: ControlConnection,
    deadline: &Deadline<'_>,
) -> Result<(ControlConnection, DataProtection), FtpError> {
    let at = access.at();
    let name = server_name(&access.address.host).map_err(|why| FtpError::Tls { at: at.to_owned(), why })?;
    let client = FtpsClient::new(&*tls_settings(&access.config.tls)?, name);
    let reply = control.ask_by(&Command::Auth("TLS"), deadline)?;
    if reply.code != 234 {
        let remedy =
            "a server without TLS is reached by ftp:// only, where everything crosses the network in clear";
        return Err(not_encrypted(at, "the login", &reply, remedy));
    }
    let session = client.connection().map_err(|error| FtpError::of_tls(at, &error))?;
    Ok((control.begin_tls(session, deadline)?, DataProtection::Ftps(client)))
}

/// Returns the commands that protect data connections, sent after the login.
pub(super) fn data_commands(scheme: Scheme, protection: &DataProtection) -> Vec<Command<'_>> {
    match (scheme, protection) {
        (_, DataProtection::Ftps(_)) => vec![Command::Pbsz(0), Command::ProtPrivate],
        (_, DataProtection::Gsi(credential)) => vec![
            Command::DcscCredential(&credential.dcsc),
            Command::DcauSelf,
            Command::Pbsz(GSI_BUFFER),
            Command::ProtPrivate,
        ],
        // Without DCAU N the server requires delegated credentials on each data connection.
        (Scheme::GsiFtp, DataProtection::Clear) => vec![Command::DcauNone],
        (Scheme::Ftp | Scheme::Ftps, DataProtection::Clear) => Vec::new(),
    }
}

/// Checks the replies to [`data_commands`], so that no data is less protected than requested.
pub(super) fn check_data(
    access: &ServerAccess<'_>,
    protection: &DataProtection,
    replies: &[Reply],
) -> Result<(), FtpError> {
    let Some(refusal) = replies.iter().find(|reply| !reply.is_positive()) else { return Ok(()) };
    let remedy = match protection {
        DataProtection::Clear => "it asks for delegated credentials, which are not supported",
        DataProtection::Gsi(_) => "leave out --encrypt to fetch the data in clear",
        DataProtection::Ftps(_) => "ftps:// fetches no data in clear",
    };
    Err(not_encrypted(access.at(), "data connections as they are needed", refusal, remedy))
}

/// Creates the error of a server that does not encrypt.
fn not_encrypted(at: &str, what: &str, reply: &Reply, remedy: &str) -> FtpError {
    let message = format!("{at} does not encrypt {what}: {reply}; {remedy}");
    Failure::new(FailureKind::Protocol, message).into()
}
