//! TLS of `serve` and `get` as processes, with openssl's certificates.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::serve::{BIN, Serve, serve};
use crate::support::skip;

/// Runs a shell script in `dir`; `None`, with the reason printed, if openssl is missing.
fn openssl(dir: &Path, script: &str) -> Option<String> {
    let script = format!("set -e; openssl version >&2 || exit 9\n{script}");
    let output = Command::new("sh").args(["-c", &script]).current_dir(dir).output().unwrap();
    if output.status.code() == Some(9) {
        skip("there is no openssl");
        return None;
    }
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A directory to serve over TLS, and keys beside it.
struct Site {
    dir: TempDir,
    keys: TempDir,
    /// SHA-256 of the server's public key.
    pin: String,
}

const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

impl Site {
    fn new() -> Option<Self> {
        let (dir, keys) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(dir.path().join("f"), "content").unwrap();
        let script = format!(
            "openssl req -x509 {NEW_KEY} -keyout server.key -out server.pem -days 2 -subj /CN=localhost
             openssl x509 -in server.pem -pubkey -noout | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary | base64"
        );
        let pin = openssl(keys.path(), &script)?;
        Some(Self { dir, keys, pin })
    }

    /// Creates an authority and a client certificate, NAME.pem and NAME.key.
    fn client(&self, authority: &str, name: &str) {
        let script = format!(
            "openssl req -x509 {NEW_KEY} -keyout {authority}.key -out {authority}.pem -days 2 -subj /CN={authority}
             openssl req {NEW_KEY} -keyout {name}.key -out {name}.csr -subj /CN={name}
             echo basicConstraints=CA:FALSE >{name}.ext
             openssl x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial -days 2 \
             -extfile {name}.ext -out {name}.pem"
        );
        openssl(self.keys.path(), &script).unwrap();
    }

    fn key(&self, name: &str) -> String {
        self.keys.path().join(name).to_str().unwrap().to_owned()
    }

    fn serve(&self, args: &[&str]) -> Serve {
        let mut command = serve(self.dir.path(), args);
        command.args(["--tls-cert", &self.key("server.pem"), "--tls-key", &self.key("server.key")]);
        Serve::start(command)
    }

    /// Fetches the file; returns the exit code and the messages.
    fn get(&self, server: &Serve, args: &[&str]) -> (Option<i32>, String) {
        let beside = tempfile::tempdir().unwrap();
        let port = server.address.port();
        let mut command = Command::new(BIN);
        command.current_dir(beside.path()).args(["get", "-q", "--retries", "0", "--no-memory", "-o", "out"]);
        command.args(["--resolve", &format!("localhost:{port}:127.0.0.1")]).args(args);
        let output = command.arg(format!("https://localhost:{port}/f")).output().unwrap();
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        let got = fs::read(beside.path().join("out")).ok();
        assert_eq!(got.as_deref(), output.status.success().then_some(&b"content"[..]), "{messages}");
        (output.status.code(), messages)
    }
}

#[test]
fn self_signed_certificate_of_openssl_is_trusted_where_it_is_given() {
    let Some(site) = Site::new() else { return };
    let server = site.serve(&[]);
    let (code, messages) = site.get(&server, &["--cacert", &site.key("server.pem")]);
    assert_eq!(code, Some(0), "{messages}");
    let (code, messages) = site.get(&server, &[]);
    assert!(code == Some(76) && messages.contains("--cacert"), "{code:?} {messages}");
}

#[test]
fn pin_accepts_the_key_that_it_names_and_no_other() {
    let Some(site) = Site::new() else { return };
    let server = site.serve(&[]);
    let (code, messages) = site.get(&server, &["--pin", &format!("sha256//{}", site.pin)]);
    assert_eq!(code, Some(0), "{messages}");
    let other = format!("sha256//{}=", "A".repeat(43));
    let (code, messages) = site.get(&server, &["--pin", &other]);
    assert!(code == Some(76) && messages.contains(&site.pin), "{code:?} {messages}");
    // The certificate is valid, but the key is not the pinned one.
    let (code, messages) = site.get(&server, &["--cacert", &site.key("server.pem"), "--pin", &other]);
    assert!(code == Some(76) && messages.contains(&site.pin), "{code:?} {messages}");
}

#[test]
fn only_clients_with_a_certificate_of_the_authority_are_served() {
    let Some(site) = Site::new() else { return };
    site.client("authority", "known");
    site.client("stranger", "foreign");
    let server = site.serve(&["--client-ca", &site.key("authority.pem")]);
    let get = |name: Option<&str>| {
        let (trusted, keys) =
            (site.key("server.pem"), name.map(|name| ["pem", "key"].map(|kind| format!("{name}.{kind}"))));
        let keys = keys.map(|keys| keys.map(|file| site.key(&file)));
        let mut args = vec!["--cacert", &trusted];
        if let Some([cert, key]) = &keys {
            args.extend(["--cert", cert, "--key", key]);
        }
        site.get(&server, &args)
    };
    let (code, messages) = get(Some("known"));
    assert_eq!(code, Some(0), "{messages}");
    let (code, messages) = get(None);
    assert!(code == Some(76) && messages.contains("--cert"), "{code:?} {messages}");
    let put = Command::new(BIN)
        .args(["put", "-q", "--retries", "0", "--no-memory", "--cacert", &site.key("server.pem")])
        .args([&site.key("server.pem"), &format!("https://localhost:{}/g", server.address.port())])
        .args(["--resolve", &format!("localhost:{}:127.0.0.1", server.address.port())])
        .output()
        .unwrap();
    let messages = String::from_utf8_lossy(&put.stderr);
    assert!(put.status.code() == Some(76) && messages.contains("--cert"), "{put:?}");
    let (code, messages) = get(Some("foreign"));
    assert!(code == Some(76) && messages.contains("certificate of --cert"), "{code:?} {messages}");
}
