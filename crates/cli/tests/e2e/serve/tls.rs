//! TLS of `serve` and `get` as processes, with openssl's certificates.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::serve::{Serve, serve};
use crate::support::{ServerProcess, get, put, skip};

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
        self.get_from(server.address.port(), args)
    }

    fn get_from(&self, port: u16, args: &[&str]) -> (Option<i32>, String) {
        let run = get().args(["-q", "--retries", "0", "--no-memory", "-o", "out"]).args(args);
        let run = run.args(["--resolve", &format!("localhost:{port}:127.0.0.1")]);
        let run = run.args([format!("https://localhost:{port}/f")]);
        let ended = run.run();
        let got = fs::read(run.path("out")).ok();
        assert_eq!(got.as_deref(), ended.status.success().then_some(&b"content"[..]), "{ended:?}");
        (ended.status.code(), ended.stderr)
    }
}

/// Starts a server of openssl, which accepts keys that `serve` refuses; returns its port.
fn s_server(site: &Site, name: &str) -> (ServerProcess, u16) {
    let mut command = Command::new("openssl");
    command.args(["s_server", "-HTTP", "-accept", "127.0.0.1:0", "-cipher", "DEFAULT@SECLEVEL=0"]);
    command.args(["-cert", &format!("{name}.pem"), "-key", &format!("{name}.key")]);
    command.current_dir(site.keys.path()).stderr(Stdio::null());
    let (process, port) = ServerProcess::announced(command, "ACCEPT 127.0.0.1:");
    (process, port.parse().unwrap())
}

#[test]
fn certificates_and_keys_that_are_given_are_trusted_as_by_curl() {
    let Some(site) = Site::new() else { return };
    let script = format!(
        r"printf 'HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\ncontent' >f
        openssl req -x509 {NEW_KEY} -keyout ca.key -out ca.pem -days 2 -subj /CN=ca
        openssl req -x509 -newkey rsa:1024 -nodes -keyout weak.key -out weak.pem -days 2 -subj /CN=localhost
        echo basicConstraints=CA:FALSE >leaf.ext
        (cat leaf.ext; echo subjectAltName=DNS:localhost) >forged.ext
        issue() {{
            openssl req {NEW_KEY} -keyout $1.key -out $1.csr -subj /CN=localhost
            openssl x509 -req -in $1.csr -CA $2.pem -CAkey $2.key -set_serial 7 -days 2 -out $1.pem $3 $4
        }}
        issue v1 ca; issue leaf ca -extfile leaf.ext; issue forged leaf -extfile forged.ext
        for name in v1 weak; do
            openssl x509 -in $name.pem -pubkey -noout | openssl pkey -pubin -outform der | sha256sum | cut -c -64
        done"
    );
    let pins = openssl(site.keys.path(), &script).unwrap();
    let (v1_pin, weak_pin) = pins.split_once('\n').unwrap();
    let [own, ca, v1, weak, leaf, forged] =
        ["server", "ca", "v1", "weak", "leaf", "forged"].map(|name| site.key(&format!("{name}.pem")));
    let (own_pin, other) = (format!("sha256//{}", site.pin), format!("sha256//{}=", "A".repeat(43)));
    let rows: [(&str, &[&str], i32, &str); 17] = [
        ("server", &["--cacert", &own], 0, ""),
        ("server", &[], 76, "--cacert"),
        ("server", &["--pin", &other, "--pin", &own_pin], 0, ""),
        ("server", &["--pin", &other], 76, &site.pin),
        // The certificate is valid, but the key is not the pinned one.
        ("server", &["--cacert", &own, "--pin", &other], 76, &site.pin),
        ("v1", &["-k"], 0, ""),
        ("v1", &["--pin", v1_pin], 0, ""),
        ("v1", &["--cacert", &ca], 0, ""),
        ("v1", &["--cacert", &v1], 0, ""),
        ("v1", &[], 76, "version 1"),
        ("weak", &["-k"], 0, ""),
        ("weak", &["--pin", weak_pin], 0, ""),
        ("weak", &["--cacert", &weak], 76, "1024 bits"),
        ("leaf", &["--cacert", &ca], 0, ""),
        ("leaf", &["--cacert", &leaf], 0, ""),
        ("forged", &["--cacert", &forged], 0, ""),
        // The certificate of a server is no authority.
        ("forged", &["--cacert", &leaf], 76, "--cacert"),
    ];
    for rows in rows.chunk_by(|one, next| one.0 == next.0) {
        let (_server, port) = s_server(&site, rows[0].0);
        for &(name, args, code, word) in rows {
            let outcome = site.get_from(port, args);
            assert!(outcome.0 == Some(code) && outcome.1.contains(word), "{name} {args:?}: {outcome:?}");
        }
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
        [(Some("known"), 0, ""), (None, 76, "--cert"), (Some("foreign"), 76, "with --cert")]
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
