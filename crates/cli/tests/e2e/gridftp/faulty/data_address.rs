//! A server that names another end for a data connection, or does not open it: the client refuses, or opens it instead.

use std::net::TcpListener;

use super::{SIZE, WITHOUT_MODE_E, fetch_in, is_refused};
use crate::support::{Scripted, content, get, same};

#[test]
fn passive_reply_that_names_another_host_or_none_is_refused() {
    let trap = TcpListener::bind("127.0.0.3:0").unwrap();
    trap.set_nonblocking(true).unwrap();
    let [high, low] = trap.local_addr().unwrap().port().to_be_bytes();
    let other = format!("227 Entering Passive Mode (127,0,0,3,{high},{low})");
    for (epsv, pasv, word) in [
        ("500 unknown", other.as_str(), "127.0.0.3"),
        ("500 unknown", &other, "another host"),
        ("227 Entering Passive Mode (1,2,3)", "227 Entering Passive Mode (1,2,3)", "no address"),
    ] {
        let replies = [("FEAT", WITHOUT_MODE_E), ("EPSV", epsv), ("PASV", pasv)];
        is_refused(&Scripted::answering(content(SIZE, 86), replies), &[76], word);
    }
    assert!(trap.accept().is_err(), "the other host is not connected to");
}

#[test]
fn server_that_does_not_connect_is_connected_to() {
    for (verb, reply, passive) in [
        ("ERET", "425 Can't open data connection", "EPSV"),
        // No connection follows.
        ("ERET", "150 connecting", "EPSV"),
        ("MODE", "504 not implemented", "RETR"),
    ] {
        let server = Scripted::new(content(SIZE, 88), move |session, command| {
            (session.extended || command.rest == "E") && session.answer(command, &[(verb, reply)])
        });
        let (run, ended) = fetch_in(get(), &server, &["--streams", "2", "--connect-timeout", "1s"]);
        assert!(ended.status.success(), "{reply}: {ended:?}");
        same(run.path("f"), &server.file());
        assert!(server.count(passive) >= 1, "{reply}: {:?}", server.commands());
    }
}
