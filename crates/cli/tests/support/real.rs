//! Real servers as child processes: nginx, Apache, and `longhaul serve`; each serves `files/` by HTTP and HTTPS.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::skip::skip;
use super::tls::{Certificates, certificates};

/// A server that runs until it is dropped.
pub(crate) struct Site {
    child: Child,
    dir: TempDir,
    port: u16,
    tls_port: u16,
}

impl Site {
    /// Starts `command` and waits until both ports accept connections.
    fn start(mut command: Command, dir: TempDir, port: u16, tls_port: u16) -> Self {
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let site = Self { child, dir, port, tls_port };
        let deadline = Instant::now() + Duration::from_secs(15);
        while TcpStream::connect(("127.0.0.1", port)).is_err()
            || TcpStream::connect(("127.0.0.1", tls_port)).is_err()
        {
            assert!(Instant::now() < deadline, "{command:?} does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        site
    }

    /// Returns the path of `name`; files below `dav/` are writable by PUT.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("files").join(name)
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) {
        write_old(&self.path(name), bytes);
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub(crate) fn tls_url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.tls_port)
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // Apache and nginx end their children on SIGTERM.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// Creates a directory with `files/` and certificates, readable by servers that drop root.
fn site_dir() -> (TempDir, Certificates) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    // Servers that drop root also write here.
    for name in ["files", "files/dav", "files/dav/private", "files/guarded", "files/tree", "locks"] {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
    }
    // The password of ann is secret.
    fs::write(dir.path().join("logins"), "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n").unwrap();
    let certificates = certificates(dir.path());
    (dir, certificates)
}

/// Writes a file with a modification time one hour ago: servers send no strong validator for a recent one.
fn write_old(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn program(paths: &[&'static str]) -> Option<&'static str> {
    let found = paths.iter().find(|path| Path::new(path).exists()).copied();
    if found.is_none() {
        skip(&format!("{} is not installed", paths[0]));
    }
    found
}

/// nginx.
pub(crate) struct Nginx;

impl Nginx {
    pub(crate) fn start() -> Option<Site> {
        let program = program(&["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"])?;
        let (dir, certificates) = site_dir();
        let (port, tls_port) = (free_port(), free_port());
        let root = dir.path().display();
        let config = format!(
            "daemon off; master_process off; pid {root}/pid; error_log {root}/error.log;
events {{ }}
http {{
  access_log off; sendfile on;
  client_body_temp_path {root}/t1; proxy_temp_path {root}/t2; fastcgi_temp_path {root}/t3;
  uwsgi_temp_path {root}/t4; scgi_temp_path {root}/t5;
  server {{
    listen 127.0.0.1:{port};
    listen 127.0.0.1:{tls_port} ssl;
    ssl_certificate {}; ssl_certificate_key {};
    root {root}/files;
    location /closing/ {{ alias {root}/files/; keepalive_timeout 0; }}
    location /one-each/ {{ alias {root}/files/; keepalive_requests 1; }}
    location /no-ranges/ {{ alias {root}/files/; max_ranges 0; }}
    location /tree/ {{ autoindex on; autoindex_format json; }}
    location /pages/ {{ alias {root}/files/tree/; autoindex on; }}
    location /dav/ {{ dav_methods PUT MKCOL; client_max_body_size 0; }}
    location /dav/small/ {{ dav_methods PUT; client_max_body_size 1m; }}
    location /dav/private/ {{
      dav_methods PUT; client_max_body_size 0; auth_basic x; auth_basic_user_file {root}/logins;
    }}
  }}
}}
",
            certificates.server.display(),
            certificates.key.display()
        );
        let path = dir.path().join("nginx.conf");
        fs::write(&path, config).unwrap();
        let mut command = Command::new(program);
        command.arg("-p").arg(dir.path()).arg("-c").arg(path);
        Some(Site::start(command, dir, port, tls_port))
    }
}

/// Apache.
pub(crate) struct Apache;

impl Apache {
    pub(crate) fn start() -> Option<Site> {
        let program = program(&["/usr/sbin/apache2"])?;
        let (dir, certificates) = site_dir();
        let (port, tls_port) = (free_port(), free_port());
        let root = dir.path().display();
        let modules: String = [
            "mpm_event",
            "authz_core",
            "autoindex",
            "ssl",
            "mime",
            "dir",
            "dav",
            "dav_fs",
            "auth_basic",
            "authn_core",
            "authn_file",
            "authz_user",
        ]
        .iter()
        .map(|m| format!("LoadModule {m}_module /usr/lib/apache2/modules/mod_{m}.so\n"))
        .collect();
        let config = format!(
            "{modules}ServerRoot {root}
ServerName localhost
PidFile {root}/pid
ErrorLog {root}/error.log
DefaultRuntimeDir {root}
User www-data
Group www-data
TypesConfig /dev/null
DocumentRoot {root}/files
StartServers 1
GracefulShutdownTimeout 1
Listen 127.0.0.1:{port}
Listen 127.0.0.1:{tls_port}
<Directory {root}/files>
  Require all granted
</Directory>
<Directory {root}/files/tree>
  Options +Indexes
</Directory>
DavLockDB {root}/locks/db
<Directory {root}/files/dav>
  Dav On
</Directory>
<Directory {root}/files/dav/private>
  AuthType Basic
  AuthName x
  AuthUserFile {root}/logins
  Require user ann
</Directory>
<Directory {root}/files/guarded>
  Dav On
  DirectorySlash Off
  AuthType Basic
  AuthName x
  AuthUserFile {root}/logins
  <LimitExcept GET HEAD OPTIONS>
    Require user ann
  </LimitExcept>
</Directory>
<VirtualHost 127.0.0.1:{tls_port}>
  SSLEngine on
  SSLCertificateFile {}
  SSLCertificateKeyFile {}
</VirtualHost>
",
            certificates.server.display(),
            certificates.key.display()
        );
        let path = dir.path().join("apache.conf");
        fs::write(&path, config).unwrap();
        let mut command = Command::new(program);
        command.arg("-f").arg(path).arg("-DFOREGROUND");
        Some(Site::start(command, dir, port, tls_port))
    }
}

/// `longhaul serve`: one process for HTTP and one for HTTPS.
pub(crate) struct Serve {
    plain: Child,
    tls: Child,
    dir: TempDir,
    urls: [String; 2],
}

impl Serve {
    pub(crate) fn start() -> Self {
        let (dir, certificates) = site_dir();
        let run = |tls: bool| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
            command.arg("serve").arg(dir.path().join("files")).args(["--listen", "127.0.0.1:0"]);
            if tls {
                command.arg("--tls-cert").arg(&certificates.server).arg("--tls-key").arg(&certificates.key);
            }
            let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
            let line = log.find(|line| line.starts_with("serving ")).unwrap();
            // Drains the log: a full pipe would block the server.
            std::thread::spawn(move || log.for_each(drop));
            let address = line.split("://127.0.0.1:").nth(1).unwrap().split('/').next().unwrap().to_owned();
            (child, address)
        };
        let ((plain, port), (tls, tls_port)) = (run(false), run(true));
        let urls = [format!("http://127.0.0.1:{port}"), format!("https://localhost:{tls_port}")];
        Self { plain, tls, dir, urls }
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) {
        write_old(&self.dir.path().join("files").join(name), bytes);
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.urls[0])
    }

    pub(crate) fn tls_url(&self, path: &str) -> String {
        format!("{}{path}", self.urls[1])
    }

    pub(crate) fn ca(&self) -> PathBuf {
        self.dir.path().join("ca.pem")
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        for child in [&mut self.plain, &mut self.tls] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
