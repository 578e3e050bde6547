//! A port that closes when it is dropped.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    closed: Arc<AtomicBool>,
}

impl Listener {
    /// Listens on loopback. `accept` gets each connection, and whether the port has been closed since.
    pub(crate) fn start(accept: impl Fn(TcpStream, &AtomicBool) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, closed) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let ended = Arc::clone(&closed);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                accept(stream, &ended);
            }
        });
        Self { address, closed }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}
