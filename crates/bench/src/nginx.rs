//! The installed nginx.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Returns the path of nginx.
///
/// # Errors
/// Explains how to install it if it is missing.
pub(crate) fn find() -> Result<PathBuf> {
    ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"]
        .into_iter()
        .map(PathBuf::from)
        .find(|program| program.exists())
        .context("nginx is not installed; `make bench` does that, or scripts/setup.sh test")
}

/// The name of the configuration.
pub(crate) const CONFIGURATION: &str = "nginx.conf";

/// Writes a configuration that serves `dir/www` on port 80 to `dir`.
///
/// # Errors
/// Fails if the file cannot be written.
pub(crate) fn configure(dir: &Path) -> Result<()> {
    let conf = dir.join(CONFIGURATION);
    fs::create_dir_all(dir.join("nginx-tmp")).with_context(|| format!("cannot make {}", dir.display()))?;
    fs::write(&conf, configuration(dir)).with_context(|| format!("cannot write {}", conf.display()))
}

/// Debian's settings of the transfer (sendfile, tcp_nopush); runs as root, which may read every directory.
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
