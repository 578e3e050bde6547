//! An FTP or GridFTP server: its greeting and its features.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use longhaul_core::proto::gridftp::{Features, Reply, ReplyReader};
use url::Url;

use super::error::ProbeError;
use super::findings::Findings;

/// How long a reply may take: servers look up their clients' names first.
const PATIENCE: Duration = Duration::from_secs(4);

/// Asks for greeting and features; no login is needed for them.
///
/// # Errors
/// [`ProbeError::Ftp`] for a server that does not answer as FTP servers do.
pub(super) fn measure(findings: &mut Findings<'_>, url: &Url, address: SocketAddr) -> Result<(), ProbeError> {
    url.scheme().clone_into(&mut findings.server.protocol);
    if url.scheme() == "ftps" {
        findings.miss("FTP features: this server begins with TLS; `longhaul get` shows whether it works");
        return Ok(());
    }
    let failed = |why: String| ProbeError::Ftp { address, why };
    let mut control =
        TcpStream::connect_timeout(&address, PATIENCE).map_err(|error| failed(error.to_string()))?;
    let mut replies = ReplyReader::default();
    let mut read = |control: &mut TcpStream| read_reply(control, &mut replies).map_err(failed);
    let greeting = read(&mut control)?;
    if !greeting.is_positive() {
        return Err(failed(format!("it greets with {}", greeting.last_line().escape_debug())));
    }
    findings.server.software = Some(greeting.last_line().escape_debug().to_string());
    control.write_all(b"FEAT\r\n").map_err(|error| failed(error.to_string()))?;
    let features = Features::parse(&read(&mut control)?);
    // Without a farewell the server's log names a broken connection; its reply is not needed.
    let _ = control.write_all(b"QUIT\r\n");
    findings.server.ranges = Some(features.restarts_streams() || features.partial_retrieve());
    let known = [
        (features.extended_mode(), "parallel data connections (MODE E)"),
        (features.partial_retrieve(), "partial retrieve (ERET)"),
        (features.adjusted_store(), "adjusted store (ESTO)"),
        (features.authenticates_by("TLS"), "TLS"),
        (features.authenticates_by("GSSAPI"), "GSI"),
    ];
    let listed = known.into_iter().filter(|(is_listed, _)| *is_listed);
    findings.server.features.extend(listed.map(|(_, name)| name.to_owned()));
    findings.miss(
        "throughput: FTP sends files only after a login; `longhaul get --record` measures a transfer, and an iperf3 server beside it would show the path",
    );
    Ok(())
}

fn read_reply(control: &mut TcpStream, replies: &mut ReplyReader) -> Result<Reply, String> {
    let until = Instant::now() + PATIENCE;
    let mut buffer = [0; 4096];
    loop {
        if let Some(reply) = replies.next_reply().map_err(|error| error.to_string())? {
            return Ok(reply);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(format!("no reply within {PATIENCE:?}"));
        }
        control.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
        match control.read(&mut buffer) {
            Ok(0) => return Err("it closed the connection".to_owned()),
            Ok(more) => replies.feed(&buffer[..more]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}
