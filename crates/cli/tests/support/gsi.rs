//! A Globus server with GSI, and a certificate authority created with openssl.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::globus::Globus;
use super::server_process::{installed, site_dir};

/// A certificate authority in its own directory.
pub(crate) struct Authority {
    dir: PathBuf,
    subject: String,
}

/// A certificate and its key, or a proxy, which contains both.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

fn openssl(dir: &Path, words: &[&str]) {
    let mut command = Command::new("openssl");
    let output = command.args(words).current_dir(dir).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "openssl {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Authority {
    /// Creates an authority named `name` in `dir`.
    pub(crate) fn new(dir: &Path, name: &str) -> Self {
        let dir = dir.join(format!("authority-{name}"));
        fs::create_dir(&dir).unwrap();
        let subject = format!("/O=Longhaul Test/CN={name}");
        let words = [
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
            "-days",
            "30",
            "-subj",
            &subject,
            "-addext",
            "basicConstraints=critical,CA:TRUE",
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign",
        ];
        openssl(&dir, &words);
        Self { dir, subject }
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// Adds the authority to a directory of trusted ones, with a policy that allows subjects matching `signs`.
    pub(crate) fn trust_in(&self, certificates: &Path, signs: &str) {
        fs::create_dir_all(certificates).unwrap();
        let words = ["x509", "-in", "ca.pem", "-noout", "-hash"];
        let output = Command::new("openssl").args(words).current_dir(&self.dir).output().unwrap();
        let hash = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        fs::copy(self.certificate(), certificates.join(format!("{hash}.0"))).unwrap();
        let policy = format!(
            "access_id_CA X509 '{}'\npos_rights globus CA:sign\ncond_subjects globus '\"{signs}\"'\n",
            self.subject
        );
        fs::write(certificates.join(format!("{hash}.signing_policy")), policy).unwrap();
    }

    /// Issues a certificate to `/O=Longhaul Test/CN=name` with the alternative names `hosts`, such as "DNS:localhost".
    pub(crate) fn issue(&self, name: &str, hosts: &str) -> Identity {
        self.issue_with(name, &format!("/O=Longhaul Test/CN={name}"), hosts, "20")
    }

    /// Issues a certificate to `subject` that is valid for `days`; a negative number makes an expired one.
    pub(crate) fn issue_with(&self, file: &str, subject: &str, hosts: &str, days: &str) -> Identity {
        let file = file.replace(' ', "-");
        let [key, request, extensions, certificate] =
            ["key", "csr", "ext", "pem"].map(|kind| format!("{file}.{kind}"));
        openssl(
            &self.dir,
            &["req", "-newkey", "rsa:2048", "-nodes", "-keyout", &key, "-out", &request, "-subj", subject],
        );
        let mut lines = "basicConstraints=CA:FALSE\nkeyUsage=digitalSignature,keyEncipherment\n".to_owned();
        if !hosts.is_empty() {
            lines += &format!("subjectAltName={hosts}\n");
        }
        fs::write(self.dir.join(&extensions), lines).unwrap();
        let words = [
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            days,
            "-out",
            &certificate,
            "-extfile",
            &extensions,
        ];
        openssl(&self.dir, &words);
        fs::set_permissions(self.dir.join(&key), Permissions::from_mode(0o600)).unwrap();
        Identity { certificate: self.dir.join(certificate), key: self.dir.join(key) }
    }
}

impl Identity {
    /// Creates a proxy certificate beside the certificate, valid for `valid` in hours:minutes; `None` if
    /// `grid-proxy-init` is not installed.
    pub(crate) fn proxy(&self, trusted: &Path, valid: &str) -> Option<PathBuf> {
        let mut command = Command::new(installed(&["/usr/bin/grid-proxy-init"])?);
        let proxy = self.certificate.with_extension("proxy");
        command.env("X509_CERT_DIR", trusted);
        command.arg("-cert").arg(&self.certificate).arg("-key").arg(&self.key);
        command.arg("-out").arg(&proxy).args(["-valid", valid]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        Some(proxy)
    }
}

/// A Globus server that requires GSI, stopped on drop; its users map to the user of the test.
pub(crate) struct GsiSite {
    pub(crate) globus: Globus,
    pub(crate) authority: Authority,
    /// The directory of trusted authorities (X509_CERT_DIR).
    pub(crate) trusted: PathBuf,
    /// Ann, a user known to the server.
    pub(crate) user: Identity,
}

impl GsiSite {
    /// Starts a server with a certificate for localhost.
    pub(crate) fn start() -> Option<Self> {
        Self::with(|authority| authority.issue("localhost", "DNS:localhost,IP:127.0.0.1"))
    }

    /// Starts a server with the certificate that `host` issues.
    pub(crate) fn with(host: impl FnOnce(&Authority) -> Identity) -> Option<Self> {
        installed(&["/usr/bin/openssl"])?;
        let dir: TempDir = site_dir();
        let authority = Authority::new(dir.path(), "Test CA");
        let trusted = dir.path().join("trusted");
        authority.trust_in(&trusted, "/O=Longhaul Test/*");
        let (host, user) = (host(&authority), authority.issue("Ann User", ""));
        let gridmap = dir.path().join("gridmap");
        let account = Command::new("id").arg("-un").output().unwrap().stdout;
        let account = String::from_utf8(account).unwrap();
        fs::write(&gridmap, format!("\"/O=Longhaul Test/CN=Ann User\" {account}")).unwrap();
        let env = [
            ("X509_CERT_DIR", trusted.clone()),
            ("X509_USER_CERT", host.certificate),
            ("X509_USER_KEY", host.key),
            ("GRIDMAP", gridmap),
        ];
        let globus = Globus::run(dir, &["-allow-root"], &env)?;
        Some(Self { globus, authority, trusted, user })
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("gsiftp://localhost:{}{}", self.globus.port(), self.globus.path(name).display())
    }

    /// Returns a client environment with Ann's certificate.
    pub(crate) fn env(&self) -> [(&'static str, String); 3] {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        [
            ("X509_CERT_DIR", text(&self.trusted)),
            ("X509_USER_CERT", text(&self.user.certificate)),
            ("X509_USER_KEY", text(&self.user.key)),
        ]
    }

    /// Returns a client environment with Ann's proxy; `None` if it cannot be created.
    pub(crate) fn proxy_env(&self) -> Option<[(&'static str, String); 2]> {
        let proxy = self.user.proxy(&self.trusted, "12:00")?;
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        Some([("X509_CERT_DIR", text(&self.trusted)), ("X509_USER_PROXY", text(&proxy))])
    }
}
