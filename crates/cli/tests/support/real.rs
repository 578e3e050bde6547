//! Real servers as child processes: nginx, Apache, and `longhaul serve`; each serves `files/` by
//! HTTP and HTTPS.

use std::any::Any;
use std::fs::{self, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::agent_home::serve;
use super::server_process::{ServerProcess, free_port, installed, write_old};
use super::tls::{Certificates, certificates};

/// A server that runs until it is dropped.
pub(crate) struct Site {
    /// Stopped on drop.
    _server: Box<dyn Any + Send + Sync>,
    dir: TempDir,
    port: u16,
    tls_port: u16,
}

impl Site {
    /// Starts `command` and waits until both ports accept connections.
    fn start(mut command: Command, dir: TempDir, [port, tls_port]: [u16; 2]) -> Self {
        command.stderr(Stdio::null());
        let server = Box::new(ServerProcess::listening(command, tls_port));
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::yield_now();
        }
        Self { _server: server, dir, port, tls_port }
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

/// Creates a directory with `files/` and certificates, readable by servers that drop root.
fn site_dir() -> (TempDir, Certificates) {
    let dir = super::site_dir();
    // Servers that drop root also write here.
    for name in ["files/dav", "files/dav/private", "files/guarded", "files/tree", "locks"] {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
    }
    // The password of ann is secret.
    fs::write(dir.path().join("logins"), "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n").unwrap();
    let certificates = certificates(dir.path());
    (dir, certificates)
}

pub(crate) struct Nginx;

impl Nginx {
    pub(crate) fn start() -> Option<Site> {
        let program = installed(&["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/bin/nginx"])?;
        let (dir, certificates) = site_dir();
        let ports @ [port, tls_port] = [free_port(), free_port()];
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
        Some(Site::start(command, dir, ports))
    }
}

pub(crate) struct Apache;

impl Apache {
    pub(crate) fn start() -> Option<Site> {
        let program = installed(&["/usr/sbin/apache2"])?;
        let (dir, certificates) = site_dir();
        let ports @ [port, tls_port] = [free_port(), free_port()];
        let root = dir.path().display();
        let modules: String = "mpm_event authz_core autoindex ssl mime dir dav dav_fs auth_basic authn_core \
                               authn_file authz_user"
            .split(' ')
            .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
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
<Directory {root}/files/tree/sub>
  IndexOptions FancyIndexing IconsAreLinks
  DefaultIcon /icon.png
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
        Some(Site::start(command, dir, ports))
    }
}

/// `longhaul serve`: one process for HTTP and one for HTTPS.
pub(crate) struct Serve;

impl Serve {
    pub(crate) fn start() -> Site {
        let (dir, certificates) = site_dir();
        let [cert, key] = [&certificates.server, &certificates.key].map(|path| path.to_str().unwrap());
        let servers = [&[][..], &["--tls-cert", cert, "--tls-key", key]].map(|options| {
            let (mut server, url) = serve(&dir.path().join("files"), options);
            // Drains the log: a full pipe would block the server.
            let mut log = server.0.stderr.take().unwrap();
            std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
            (server, url.rsplit(':').next().unwrap().parse().unwrap())
        });
        let [port, tls_port] = [servers[0].1, servers[1].1];
        Site { _server: Box::new(servers), dir, port, tls_port }
    }
}
