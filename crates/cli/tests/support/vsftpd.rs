//! vsftpd: plain FTP and FTPS with REST, without MODE E.

use std::fs;
use std::process::{Command, Stdio};

use super::server_process::{FtpSite, ServerProcess, free_port, installed, needs_root, site_dir};
use super::tls::certificates;

/// A vsftpd for anonymous users, stopped on drop; its paths begin with `files/`.
pub(crate) struct Vsftpd;

impl Vsftpd {
    /// Starts a server without TLS; `None` if it is not installed, or without root.
    pub(crate) fn start() -> Option<FtpSite> {
        Self::with("")
    }

    /// Starts a server that requires TLS on control and data connections, and session resumption on data connections.
    pub(crate) fn with_tls() -> Option<FtpSite> {
        Self::with(
            "ssl_enable=YES\nallow_anon_ssl=YES\nforce_anon_logins_ssl=YES\nforce_anon_data_ssl=YES\n\
             ssl_ciphers=HIGH\nrequire_ssl_reuse=YES\n",
        )
    }

    /// Starts a server with additional configuration lines.
    pub(crate) fn with(lines: &str) -> Option<FtpSite> {
        // Its package conflicts with proftpd, so setup.sh unpacks it.
        let program = installed(&["/opt/longhaul-test/vsftpd", "/usr/sbin/vsftpd"])?;
        needs_root("vsftpd")?;
        let (dir, port) = (site_dir(), free_port());
        let tls = certificates(dir.path());
        let root = dir.path().display();
        // vsftpd chroots its network process here; the directory must not be writable for it.
        fs::create_dir(dir.path().join("empty")).unwrap();
        // vsftpd refuses a writable root for anonymous users, so their root is the parent of `files/`; and users without a home.
        let config = format!(
            "listen=YES\nlisten_address=127.0.0.1\nlisten_port={port}\nbackground=NO\nseccomp_sandbox=NO\n\
             anonymous_enable=YES\nlocal_enable=NO\nftp_username=daemon\nanon_root={root}\n\
             secure_chroot_dir={root}/empty\nallow_writeable_chroot=YES\nwrite_enable=YES\n\
             anon_upload_enable=YES\nanon_mkdir_write_enable=YES\nanon_other_write_enable=YES\nanon_umask=022\n\
             mdtm_write=YES\nconnect_from_port_20=NO\n\
             xferlog_enable=YES\nlog_ftp_protocol=YES\nvsftpd_log_file={root}/server.log\n\
             dual_log_enable=NO\nxferlog_std_format=NO\n\
             rsa_cert_file={}\nrsa_private_key_file={}\n{lines}",
            tls.server.display(),
            tls.key.display()
        );
        let path = dir.path().join("vsftpd.conf");
        fs::write(&path, config).unwrap();
        let mut command = Command::new(program);
        command.arg(path).stderr(Stdio::null());
        let server = ServerProcess::listening(command, port);
        Some(FtpSite::new(server, dir, port, "/files/".to_owned()))
    }
}
