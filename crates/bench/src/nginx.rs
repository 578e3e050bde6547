//! A real nginx on a lab's far host.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use longhaul_lab::{Lab, Process};

/// Stops with the lab.
#[derive(Debug)]
pub(crate) struct Nginx {
    _process: Process,
    /// Where it listens.
    pub(crate) server: SocketAddr,
}

/// Returns the installed program.
///
/// # Errors
/// Says how to install it where it is missing.
pub(crate) fn find() -> Result<PathBuf> {
    ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"]
        .into_iter()
        .map(PathBuf::from)
        .find(|program| program.exists())
        .context("nginx is not installed; `make bench` does that, or scripts/setup.sh test")
}

impl Nginx {
    /// Starts it with a configuration of its own, serving `dir/www`, and waits until it answers the near host.
    ///
    /// # Errors
    /// Fails where it cannot be started or does not answer; its log is in `dir`.
    pub(crate) fn start(lab: &Lab, program: &Path, dir: &Path) -> Result<Self> {
        let server = SocketAddr::from((lab.far().ipv4(), 80));
        let (conf, log) = (dir.join("nginx.conf"), dir.join("nginx.log"));
        fs::write(&conf, configuration(dir)).with_context(|| format!("cannot write {}", conf.display()))?;
        let log_file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = lab.far().command(program);
        command.arg("-p").arg(dir).arg("-c").arg(&conf);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log_file);
        let process = lab.far().spawn(command)?;

        let deadline = Instant::now() + Duration::from_secs(10);
        while let Err(error) =
            lab.near().run(move || TcpStream::connect_timeout(&server, Duration::from_secs(2)))?
        {
            if Instant::now() > deadline {
                bail!("nginx does not answer: {error}; its log is {}", log.display());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(Self { _process: process, server })
    }
}

/// Debian's own settings where they touch the transfer (sendfile, tcp_nopush); root may read every directory.
fn configuration(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "daemon off; user root; worker_processes 1; pid {dir}/nginx.pid; error_log stderr;
events {{ }}
http {{
  sendfile on; tcp_nopush on; access_log off;
  client_body_temp_path {dir}/nginx-tmp/1; proxy_temp_path {dir}/nginx-tmp/2; fastcgi_temp_path {dir}/nginx-tmp/3;
  uwsgi_temp_path {dir}/nginx-tmp/4; scgi_temp_path {dir}/nginx-tmp/5;
  server {{ listen 80; root {dir}/www; }}
}}
"
    )
}
