//! The end of a file of unknown size over TLS requires close_notify, as a FIN can be forged. vsftpd 3.0.3 and proftpd
//! 1.3.8 send it (tested 2026-11-24), but always report the size.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::thread::{sleep, spawn};
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::support::{content, get, server_config};

const SIZE: usize = (1 << 20) + 55;
/// The time after which a late server answers: usually after the client has received what was sent before.
const LATE: Duration = Duration::from_millis(400);

/// How the server treats its data connections.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DataTls {
    /// It ends TLS with close_notify.
    Closes,
    /// It ends the connection without close_notify.
    BreaksOff,
    /// It never answers the handshake.
    IsSilent,
    /// It never answers the handshake, and refuses the transfer on the control connection.
    IsRefused,
    /// It resets the connection, and then refuses the transfer on the control connection.
    IsReset,
    /// It reports the end of the transfer, then answers the handshake and ends TLS with close_notify.
    IsLate,
}

/// Why the server refuses a transfer after its reply 150, as vsftpd does with `require_ssl_reuse`.
pub(crate) const REFUSAL: &str = "522 SSL connection failed; session reuse required";

#[test]
fn an_end_without_close_notify_is_no_end_of_a_file() {
    let bytes = content(SIZE, 22);
    for data_tls in [DataTls::Closes, DataTls::BreaksOff] {
        let dir = tempfile::tempdir().unwrap();
        let address = serve(dir.path(), bytes.clone(), data_tls);
        let url = format!("ftps://localhost:{}/f", address.port());
        let run = get().args(["--retries", "0", "-o", "f", &url]);
        let run = run.args(["--cacert", dir.path().join("ca.pem").to_str().unwrap()]);
        if data_tls == DataTls::Closes {
            run.fetches(&bytes);
        } else {
            run.fails_unnamed(75, &["without closing TLS"]);
        }
    }
}

/// Serves a file of unknown size over FTPS, by a certificate of the authority `ca.pem` in `dir`.
pub(crate) fn serve(dir: &Path, bytes: Vec<u8>, data_tls: DataTls) -> SocketAddr {
    let settings = server_config(dir);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (settings, bytes) = (Arc::clone(&settings), bytes.clone());
            spawn(move || {
                // A client that closes ends the session.
                let _ = session(stream, &settings, &bytes, data_tls);
            });
        }
    });
    address
}

/// Serves one control connection.
fn session(
    mut clear: TcpStream,
    settings: &Arc<ServerConfig>,
    bytes: &[u8],
    data_tls: DataTls,
) -> std::io::Result<()> {
    clear.write_all(b"220 scripted\r\n")?;
    BufReader::new(clear.try_clone()?).read_line(&mut String::new())?;
    clear.write_all(b"234 begin TLS\r\n")?;
    let tls = |socket| StreamOwned::new(ServerConnection::new(Arc::clone(settings)).unwrap(), socket);
    let mut control = BufReader::new(tls(clear));
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let passive = format!("229 passive (|||{}|)", listener.local_addr()?.port());
    loop {
        let mut line = String::new();
        if control.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut reply = |text: &str| control.get_mut().write_all(format!("{text}\r\n").as_bytes());
        match line.split([' ', '\r']).next().unwrap_or_default() {
            "USER" => reply("331 password")?,
            "PASS" => reply("230 in")?,
            "TYPE" | "PBSZ" | "PROT" => reply("200 done")?,
            "REST" => reply("350 go on")?,
            "EPSV" => reply(&passive)?,
            "RETR" => {
                reply("150 sending")?;
                let mut data = listener.accept()?.0;
                match data_tls {
                    DataTls::IsReset => {
                        // Unread bytes, those of the client's first message, make the kernel reset it.
                        data.read_exact(&mut [0])?;
                        drop(data);
                        sleep(LATE);
                        reply(REFUSAL)?;
                        continue;
                    }
                    DataTls::IsRefused => reply(REFUSAL)?,
                    DataTls::IsLate => {
                        reply("226 complete")?;
                        sleep(LATE);
                    }
                    DataTls::Closes | DataTls::BreaksOff | DataTls::IsSilent => {}
                }
                if matches!(data_tls, DataTls::IsSilent | DataTls::IsRefused) {
                    // Until the client closes it.
                    data.read_to_end(&mut Vec::new())?;
                    return Ok(());
                }
                let mut data = tls(data);
                data.write_all(bytes)?;
                if data_tls != DataTls::BreaksOff {
                    data.conn.send_close_notify();
                }
                data.flush()?;
                if data_tls != DataTls::IsLate {
                    reply("226 complete")?;
                }
            }
            _ => reply("500 unknown")?,
        }
    }
}
