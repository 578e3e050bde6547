//! A real nginx.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

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

/// Writes a configuration of its own, by which it serves `dir/www` on port 80, and returns where that is.
///
/// # Errors
/// Fails where it cannot be written.
pub(crate) fn configure(dir: &Path) -> Result<PathBuf> {
    let conf = dir.join("nginx.conf");
    fs::create_dir_all(dir.join("nginx-tmp")).with_context(|| format!("cannot make {}", dir.display()))?;
    fs::write(&conf, configuration(dir)).with_context(|| format!("cannot write {}", conf.display()))?;
    Ok(conf)
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
