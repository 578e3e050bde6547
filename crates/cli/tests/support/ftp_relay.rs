//! A relay in front of an FTP server: it announces its own ports in replies to EPSV and PASV, and modifies data as a test requires.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// The fate of bytes from the client.
pub(crate) enum DataAction {
    /// Forward the bytes, possibly modified.
    Pass,
    /// Close the connection at once.
    Cut,
}

/// Handles bytes of a data connection: its number from 0, the offset within it, and the bytes.
type DataHandler = dyn Fn(usize, u64, &mut [u8]) -> DataAction + Send + Sync;

/// A relay that runs until the process ends.
pub(crate) struct FtpRelay {
    port: u16,
    /// Control connections; closed by [`FtpRelay::cut_control`].
    controls: Arc<Mutex<Vec<TcpStream>>>,
}

impl FtpRelay {
    /// Forwards connections to the FTP server at `to`; `handle_data` handles the client's bytes on data connections.
    pub(crate) fn new(
        to: u16,
        handle_data: impl Fn(usize, u64, &mut [u8]) -> DataAction + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let controls = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&controls);
        let (handle_data, number) =
            (Arc::new(handle_data) as Arc<DataHandler>, Arc::new(AtomicUsize::new(0)));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)) else { continue };
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                kept.lock().unwrap().push(client.try_clone().unwrap());
                let (handle_data, number) = (Arc::clone(&handle_data), Arc::clone(&number));
                thread::spawn(move || control(&client, &server, &handle_data, &number));
            }
        });
        Self { port, controls }
    }

    /// Closes all open control connections.
    pub(crate) fn cut_control(&self) {
        for control in self.controls.lock().unwrap().drain(..) {
            let _ = control.shutdown(Shutdown::Both);
        }
    }

    /// Returns a URL of the server with the relay's port.
    pub(crate) fn url(&self, url: &str) -> String {
        let mut url: url::Url = url.parse().unwrap();
        url.set_port(Some(self.port)).unwrap();
        url.into()
    }
}

/// Forwards commands unchanged, and replies with the relay's ports.
fn control(
    client: &TcpStream,
    server: &TcpStream,
    handle_data: &Arc<DataHandler>,
    number: &Arc<AtomicUsize>,
) {
    thread::scope(|threads| {
        threads.spawn(|| {
            let _ = io::copy(&mut &*client, &mut &*server);
            let _ = server.shutdown(Shutdown::Both);
        });
        let mut lines = BufReader::new(server);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line).into_owned();
            let passed = match passive_port(&text) {
                Some(port) => {
                    let own = data(port, Arc::clone(handle_data), Arc::clone(number));
                    format!("229 Entering Extended Passive Mode (|||{own}|)\r\n").into_bytes()
                }
                None => line.clone(),
            };
            if (&*client).write_all(&passed).is_err() {
                break;
            }
            line.clear();
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    });
}

/// Parses the port of a reply to EPSV.
fn passive_port(line: &str) -> Option<u16> {
    line.starts_with("229 ").then(|| line.split("|||").nth(1)?.split('|').next()?.parse().ok()).flatten()
}

/// Listens for data connections to the server's port `to`; returns the relay's port.
fn data(to: u16, handle_data: Arc<DataHandler>, number: Arc<AtomicUsize>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)) else { continue };
            let (handle_data, number) = (Arc::clone(&handle_data), number.fetch_add(1, Ordering::SeqCst));
            thread::spawn(move || pass(&client, &server, &*handle_data, number));
        }
    });
    port
}

/// Forwards a data connection until either end closes it.
fn pass(client: &TcpStream, server: &TcpStream, handle_data: &DataHandler, number: usize) {
    thread::scope(|threads| {
        threads.spawn(|| {
            let _ = io::copy(&mut &*server, &mut &*client);
            let _ = client.shutdown(Shutdown::Both);
        });
        let (mut buffer, mut offset) = (vec![0; 64 << 10], 0);
        while let Ok(n) = (&*client).read(&mut buffer) {
            if n == 0 {
                break;
            }
            if let DataAction::Cut = handle_data(number, offset, &mut buffer[..n]) {
                let _ = client.shutdown(Shutdown::Both);
                break;
            }
            offset += n as u64;
            if (&*server).write_all(&buffer[..n]).is_err() {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Write);
    });
}
