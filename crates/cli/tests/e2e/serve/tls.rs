//! TLS of `serve` and `get` as processes, with openssl's certificates.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::serve::{Serve, serve};
use crate::support::{get, put, skip};

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
        let port = server.address.port();
        let run = get().args(["-q", "--retries", "0", "--no-memory", "-o", "out"]).args(args);
        let run = run.args(["--resolve", &format!("localhost:{port}:127.0.0.1")]);
        let run = run.args([format!("https://localhost:{port}/f")]);
        let ended = run.run();
        let got = fs::read(run.path("out")).ok();
        assert_eq!(got.as_deref(), ended.status.success().then_some(&b"content"[..]), "{ended:?}");
        (ended.status.code(), ended.stderr)
    }
}

#[test]
fn certificate_is_trusted_where_it_or_its_key_is_given() {
    let Some(site) = Site::new() else { return };
    let server = site.serve(&[]);
    let (given, own) = (site.key("server.pem"), format!("sha256//{}", site.pin));
    let other = format!("sha256//{}=", "A".repeat(43));
    for (args, code, word) in [
        (vec!["--cacert", &given], 0, ""),
        (vec![], 76, "--cacert"),
        (vec!["--pin", &own], 0, ""),
        (vec!["--pin", &other, "--pin", &own], 0, ""),
        (vec!["--pin", &other], 76, &site.pin),
        // The certificate is valid, but the key is not the pinned one.
        (vec!["--cacert", &given, "--pin", &other], 76, &site.pin),
    ] {
        let outcome = site.get(&server, &args);
        assert!(outcome.0 == Some(code) && outcome.1.contains(word), "{args:?}: {outcome:?}");
    }
}

#[test]
fn only_clients_with_a_certificate_of_the_authority_are_served() {
    let Some(site) = Site::new() else { return };
    site.client("authority", "known");
    site.client("stranger", "foreign");
    let server = site.serve(&["--client-ca", &site.key("authority.pem")]);
    let trusted = site.key("server.pem");
    for (name, code, word) in
        [(Some("known"), 0, ""), (None, 76, "--cert"), (Some("foreign"), 76, "certificate of --cert")]
    {
        let keys = name.map(|name| ["pem", "key"].map(|kind| site.key(&format!("{name}.{kind}"))));
        let mut args = vec!["--cacert", &trusted];
        if let Some([cert, key]) = &keys {
            args.extend(["--cert", cert, "--key", key]);
        }
        let outcome = site.get(&server, &args);
        assert!(outcome.0 == Some(code) && outcome.1.contains(word), "{name:?}: {outcome:?}");
    }
    let port = server.address.port();
    let run = put().args(["-q", "--retries", "0", "--no-memory", "--cacert", &trusted, &trusted]);
    let run = run.args(["--resolve", &format!("localhost:{port}:127.0.0.1")]);
    run.args([format!("https://localhost:{port}/g")]).run().fails(76, &["--cert"]);
}
