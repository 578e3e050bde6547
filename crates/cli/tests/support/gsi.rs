//! A Globus server with GSI, and a certificate authority created with openssl.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use tempfile::TempDir;

use super::globus::Globus;
use super::program::Get;
use super::server_process::{installed, site_dir};

/// A certificate authority in its own directory.
pub(crate) struct Authority {
    dir: PathBuf,
    subject: String,
}

pub(crate) struct Identity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Runs openssl with these words, which have no spaces, and further arguments; returns its output.
pub(crate) fn openssl(dir: &Path, words: &str, more: &[&str]) -> String {
    let mut command = Command::new("openssl");
    let output = command.args(words.split(' ')).args(more).current_dir(dir).stdin(Stdio::null()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the RSA key `name`, which is created once a program: that takes a second on a busy
/// machine.
fn rsa_key(name: &str) -> String {
    static KEYS: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let mut keys = KEYS.lock().unwrap();
    keys.entry(name.to_owned()).or_insert_with(|| openssl(Path::new("/"), "genrsa 2048", &[])).clone()
}

impl Authority {
    /// Creates an authority named `name` in `dir`, with the key `key`.
    pub(crate) fn new(dir: &Path, name: &str, key: &str) -> Self {
        let dir = dir.join(format!("authority-{name}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("ca.key"), rsa_key(key)).unwrap();
        let subject = format!("/O=Longhaul Test/CN={name}");
        let words = "req -x509 -key ca.key -out ca.pem -days 30 -addext basicConstraints=critical,CA:TRUE \
                     -addext keyUsage=critical,keyCertSign,cRLSign -subj";
        openssl(&dir, words, &[&subject]);
        Self { dir, subject }
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// Adds the authority to a directory of trusted ones, with a policy that allows subjects
    /// matching `signs`.
    pub(crate) fn trust_in(&self, certificates: &Path, signs: &str) {
        fs::create_dir_all(certificates).unwrap();
        let hash = openssl(&self.dir, "x509 -in ca.pem -noout -hash", &[]);
        let hash = hash.trim();
        fs::copy(self.certificate(), certificates.join(format!("{hash}.0"))).unwrap();
        let policy = format!(
            "access_id_CA X509 '{}'\npos_rights globus CA:sign\ncond_subjects globus '\"{signs}\"'\n",
            self.subject
        );
        fs::write(certificates.join(format!("{hash}.signing_policy")), policy).unwrap();
    }

    /// Issues a certificate to `/O=Longhaul Test/CN=name` with the alternative names `hosts`, such
    /// as "DNS:localhost".
    pub(crate) fn issue(&self, name: &str, hosts: &str) -> Identity {
        self.issue_with(name, &format!("/O=Longhaul Test/CN={name}"), hosts, "20")
    }

    /// Issues a certificate to `subject` that is valid for `days`; a negative number makes an
    /// expired one.
    pub(crate) fn issue_with(&self, file: &str, subject: &str, hosts: &str, days: &str) -> Identity {
        let file = file.replace(' ', "-");
        let [key, request, extensions, certificate] =
            ["key", "csr", "ext", "pem"].map(|kind| format!("{file}.{kind}"));
        fs::write(self.dir.join(&key), rsa_key(&file)).unwrap();
        openssl(&self.dir, &format!("req -new -key {key} -out {request} -subj"), &[subject]);
        let mut lines = "basicConstraints=CA:FALSE\nkeyUsage=digitalSignature,keyEncipherment\n".to_owned();
        if !hosts.is_empty() {
            lines += &format!("subjectAltName={hosts}\n");
        }
        fs::write(self.dir.join(&extensions), lines).unwrap();
        let words = format!(
            "x509 -req -in {request} -CA ca.pem -CAkey ca.key -CAcreateserial -days {days} -out {certificate} \
             -extfile {extensions}"
        );
        openssl(&self.dir, &words, &[]);
        fs::set_permissions(self.dir.join(&key), Permissions::from_mode(0o600)).unwrap();
        Identity { certificate: self.dir.join(certificate), key: self.dir.join(key) }
    }
}

/// Adds credentials to the environment of a run, which then has no others.
pub(crate) fn with_credentials(run: Get, env: impl IntoIterator<Item = (&'static str, String)>) -> Get {
    // An empty variable counts as unset.
    let names = ["X509_USER_PROXY", "X509_USER_CERT", "X509_USER_KEY", "X509_CERT_DIR"];
    let run = names.into_iter().fold(run, |run, name| run.env(name, ""));
    env.into_iter().fold(run, |run, (name, value)| run.env(name, value))
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
        let authority = Authority::new(dir.path(), "Test CA", "authority");
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
        Self::env_of(&self.trusted, &self.user.certificate, &self.user.key)
    }

    /// Returns a client environment with these trusted authorities and this certificate.
    pub(crate) fn env_of(trusted: &Path, certificate: &Path, key: &Path) -> [(&'static str, String); 3] {
        [("X509_CERT_DIR", trusted), ("X509_USER_CERT", certificate), ("X509_USER_KEY", key)]
            .map(|(name, path)| (name, path.display().to_string()))
    }

    /// Returns a client environment with Ann's proxy; `None` if `grid-proxy-init` is not installed.
    pub(crate) fn proxy_env(&self) -> Option<[(&'static str, String); 2]> {
        let mut command = Command::new(installed(&["/usr/bin/grid-proxy-init"])?);
        let proxy = self.user.certificate.with_extension("proxy");
        command.env("X509_CERT_DIR", &self.trusted);
        command.arg("-cert").arg(&self.user.certificate).arg("-key").arg(&self.user.key);
        let output = command.arg("-out").arg(&proxy).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let text = |path: &Path| path.display().to_string();
        Some([("X509_CERT_DIR", text(&self.trusted)), ("X509_USER_PROXY", text(&proxy))])
    }
}
