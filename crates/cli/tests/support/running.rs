//! A process that is killed on drop.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Killed on drop.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Starts `longhaul serve`, and waits until it serves; returns its URL too.
    pub(crate) fn server(serve: &mut Command) -> (Self, String) {
        let mut server = Self(serve.stderr(Stdio::piped()).spawn().unwrap());
        let mut log = BufReader::new(server.0.stderr.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("serving ") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "the server ended before it served");
        }
        // Keeps the pipe open for later log lines.
        server.0.stderr = Some(log.into_inner());
        (server, line.split("://").nth(1).unwrap().split('/').next().unwrap().to_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
