//! proftpd and vsftpd: plain FTP and FTPS with REST, without MODE E; proftpd with passwords and
//! MLST.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use super::server_process::{
    FtpSite, ServerProcess, free_port, installed, needs_root, site_dir, write_secret,
};
use super::tls::certificates;

/// Directory of the loadable modules, as built by Debian.
const MODULES: &str = "/usr/lib/proftpd";

/// Ann's password, hashed: openssl passwd -6 -salt longhaul 'secret word'.
const HASH: &str =
    "$6$longhaul$ZEJEmUIgqWm/.7XxD9Qj5opkJIwJW4dIjWEeYehSM7S/sf9RebAsSe8k5glG1.o14QiO3KGCX7JR9Fkp7k8Pq1";

/// A proftpd for anonymous users and for ann with the password "secret word", stopped on drop; its
/// root is `files/`.
pub(crate) struct Proftpd;

impl Proftpd {
    /// Starts a server without TLS; `None` if it is not installed, or without root.
    pub(crate) fn start() -> Option<FtpSite> {
        Self::with("")
    }

    /// Starts a server that requires TLS on control and data connections.
    pub(crate) fn with_tls() -> Option<FtpSite> {
        installed(&["/usr/lib/proftpd/mod_tls.so"])?;
        Self::with(&format!(
            "ModulePath {MODULES}\nLoadModule mod_tls.c\nTLSEngine on\nTLSRequired on\n\
             TLSRSACertificateFile ROOT/server.pem\nTLSRSACertificateKeyFile ROOT/server.key\n\
             TLSECCertificateFile ROOT/server.pem\nTLSECCertificateKeyFile ROOT/server.key\nTLSLog ROOT/tls.log\n"
        ))
    }

    /// Starts a server with additional configuration lines, in which ROOT is replaced by its
    /// directory.
    pub(crate) fn with(lines: &str) -> Option<FtpSite> {
        let program = installed(&["/usr/sbin/proftpd"])?;
        needs_root("proftpd")?;
        let (dir, port) = (site_dir(), free_port());
        certificates(dir.path());
        let root = dir.path().display().to_string();
        let key = dir.path().join("server.key");
        fs::set_permissions(key, Permissions::from_mode(0o600)).unwrap();
        let users = dir.path().join("users");
        write_secret(&users, &format!("ann:{HASH}:65534:65534::{root}/files:/bin/sh\n"));
        let config = format!(
            "ServerName test\nServerType standalone\nDefaultAddress 127.0.0.1\nSocketBindTight on\nPort {port}\n\
             UseIPv6 off\nUseReverseDNS off\nUser nobody\nGroup nogroup\nUmask 022\nRequireValidShell off\nUseFtpUsers off\n\
             WtmpLog off\nPidFile {root}/pid\nScoreboardFile {root}/scoreboard\nDelayEngine off\n\
             SystemLog {root}/server.log\nTransferLog {root}/transfers.log\nMaxInstances 200\n\
             AuthOrder mod_auth_file.c mod_auth_unix.c\nAuthUserFile {root}/users\nAllowStoreRestart on\nAllowOverwrite on\n\
             AllowRetrieveRestart on\nDefaultRoot {root}/files\n{}\n\
             <Anonymous {root}/files>\n User nobody\n Group nogroup\n UserAlias anonymous nobody\n\
             </Anonymous>\n",
            lines.replace("ROOT", &root)
        );
        let path = dir.path().join("proftpd.conf");
        fs::write(&path, config).unwrap();
        let mut command = Command::new(program);
        command.arg("-n").arg("-c").arg(path).stderr(Stdio::null());
        let server = ServerProcess::listening(command, port);
        Some(FtpSite::new(server, dir, port, "/".to_owned()))
    }
}

/// A vsftpd for anonymous users, stopped on drop; its paths begin with `files/`.
pub(crate) struct Vsftpd;

impl Vsftpd {
    /// Starts a server without TLS; `None` if it is not installed, or without root.
    pub(crate) fn start() -> Option<FtpSite> {
        Self::with("")
    }

    /// Starts a server that requires TLS on control and data connections, and session resumption on
    /// data connections.
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
        // vsftpd refuses a writable root for anonymous users, so their root is the parent of
        // `files/`; and users without a home.
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
