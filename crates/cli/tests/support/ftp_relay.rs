//! A relay in front of an FTP server: it announces its own ports in replies to EPSV and PASV, and
//! modifies data as a test requires.

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
    /// Forwards connections to the FTP server at `to`; `handle_data` handles the client's bytes on
    /// data connections.
    pub(crate) fn new(
        to: u16,
        handle_data: impl Fn(usize, u64, &mut [u8]) -> DataAction + Send + Sync + 'static,
    ) -> Self {
        let controls = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&controls);
        let (handle_data, number) =
            (Arc::new(handle_data) as Arc<DataHandler>, Arc::new(AtomicUsize::new(0)));
        let port = listen(to, move |client, server| {
            kept.lock().unwrap().push(client.try_clone().unwrap());
            control(client, server, &handle_data, &number);
        });
        Self { port, controls }
    }

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

/// Forwards each connection to the server's port `to` by `forward`; returns the relay's port.
fn listen(to: u16, forward: impl Fn(&TcpStream, &TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let forward = Arc::new(forward);
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)) else { continue };
            client.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            let forward = Arc::clone(&forward);
            thread::spawn(move || forward(&client, &server));
        }
    });
    port
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
        for line in BufReader::new(server).lines().map_while(Result::ok) {
            let passed = match passive_port(&line) {
                Some(port) => {
                    let (handle_data, number) = (Arc::clone(handle_data), Arc::clone(number));
                    let own = listen(port, move |client, server| {
                        data(client, server, &*handle_data, number.fetch_add(1, Ordering::SeqCst));
                    });
                    format!("229 Entering Extended Passive Mode (|||{own}|)")
                }
                None => line,
            };
            if write!(&mut &*client, "{}\r\n", passed.trim_end()).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    });
}

/// Parses the port of a reply to EPSV.
fn passive_port(line: &str) -> Option<u16> {
    line.strip_prefix("229 ")?.split("|||").nth(1)?.split('|').next()?.parse().ok()
}

/// Forwards a data connection until either end closes it.
fn data(client: &TcpStream, server: &TcpStream, handle_data: &DataHandler, number: usize) {
    thread::scope(|threads| {
        threads.spawn(|| {
            let _ = io::copy(&mut &*server, &mut &*client);
            let _ = client.shutdown(Shutdown::Both);
        });
        let (mut buffer, mut offset) = (vec![0; 64 << 10], 0);
        while let Ok(n @ 1..) = (&*client).read(&mut buffer) {
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
