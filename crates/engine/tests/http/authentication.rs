//! Logins from the URL, the settings and .netrc.

use std::fs;

use longhaul_engine::source::http::{Client, ClientConfig, Credentials, ErrorKind, HttpError, NetrcFile};

use crate::support::{Nginx, client, next, open, open_error, quick, read_all};

#[test]
fn logins_of_url_settings_and_netrc_are_used() {
    let Some(nginx) = Nginx::start() else { return };
    nginx.file("data", b"12345");
    let error = open_error(&client(), &nginx.url("/private/data"));
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains(".netrc"), "{error}");

    let with_login = nginx.url("/private/data").replace("http://", "http://ann:secret@");
    let mut opened = open(&client(), &with_login).unwrap();
    assert_eq!(read_all(&mut opened.connection, 9).unwrap(), b"12345");
    assert!(!opened.target.url().as_str().contains("secret"));

    let config = ClientConfig { credentials: Some(Credentials::from_login("ann:secret")), ..quick() };
    open(&Client::new(config).unwrap(), &nginx.url("/private/data")).unwrap();

    let netrc = nginx.dir.path().join("netrc");
    fs::write(&netrc, "machine other login x password y\nmachine 127.0.0.1 login ann password \"secret\"\n")
        .unwrap();
    let client = Client::new(ClientConfig { netrc: Some(NetrcFile::at(&netrc)), ..quick() }).unwrap();
    for path in ["/private/data", "/hidden/"] {
        let mut opened = open(&client, &nginx.url(path)).unwrap();
        assert_eq!(read_all(&mut opened.connection, 9).unwrap(), b"12345");
        // Further connections use the login.
        let mut second = client.connect(&mut opened.target, &longhaul_engine::cancel::Cancel::new()).unwrap();
        assert_eq!(next(&mut second, None).0, 200);
    }

    fs::write(&netrc, "machine 127.0.0.1 login ann password wrong").unwrap();
    let error = open_error(&client, &nginx.url("/private/data"));
    assert!(matches!(error, HttpError::Status { status: 401, .. }), "{error}");
    assert!(!error.to_string().contains("wrong"), "{error}");

    // A file that cannot be read is named, without its passwords.
    fs::write(&netrc, "machine a password hunter2 login").unwrap();
    let client = Client::new(ClientConfig { netrc: Some(NetrcFile::at(&netrc)), ..quick() }).unwrap();
    let error = open_error(&client, &nginx.url("/private/data"));
    assert_eq!(error.kind(), ErrorKind::LocalFile);
    let text = error.to_string();
    let named = text.contains(netrc.to_str().unwrap()) && text.contains("line 1");
    assert!(named && !text.contains("hunter2"), "{text}");
}
