//! A server that names another end for a data connection, or does not open it: the client refuses, or opens it instead.

use std::net::TcpListener;

use super::{SIZE, WITHOUT_MODE_E, is_right, is_soon_refused};
use crate::support::{Scripted, content, get, same};

#[test]
fn a_passive_reply_that_names_another_host_is_refused() {
    let trap = TcpListener::bind("127.0.0.3:0").unwrap();
    trap.set_nonblocking(true).unwrap();
    let [high, low] = trap.local_addr().unwrap().port().to_be_bytes();
    let bytes = content(SIZE, 86);
    let server = Scripted::new(bytes, move |session, ask| {
        match ask.verb.as_str() {
            "FEAT" => session.reply(WITHOUT_MODE_E),
            "EPSV" => session.reply("500 unknown"),
            "PASV" => session.reply(&format!("227 Entering Passive Mode (127,0,0,3,{high},{low})")),
            _ => return false,
        }
        true
    });
    is_soon_refused(&server, 76, &["127.0.0.3", "another host"]);
    assert!(trap.accept().is_err(), "the other host is not connected to");
}

#[test]
fn a_passive_reply_without_address_is_refused() {
    let bytes = content(SIZE, 87);
    let server = Scripted::new(bytes, |session, ask| {
        match ask.verb.as_str() {
            "FEAT" => session.reply(WITHOUT_MODE_E),
            "EPSV" | "PASV" => session.reply("227 Entering Passive Mode (1,2,3)"),
            _ => return false,
        }
        true
    });
    is_soon_refused(&server, 76, &["no address"]);
}

#[test]
fn a_server_that_cannot_connect_is_connected_to() {
    let bytes = content(SIZE, 88);
    let server = Scripted::new(bytes.clone(), |session, ask| {
        let refused = session.extended && ask.verb == "ERET";
        if refused {
            session.reply("425 Can't open data connection");
        }
        refused
    });
    is_right(&server, "2", &bytes);
    assert!(server.count("EPSV") >= 1, "{:?}", server.commands());
}

#[test]
fn client_connects_if_the_server_does_not() {
    let bytes = content(SIZE, 89);
    let server = Scripted::new(bytes.clone(), |session, ask| {
        let silent = session.extended && ask.verb == "ERET";
        if silent {
            session.reply("150 connecting");
        }
        silent
    });
    let options = ["--streams", "2", "--retries", "3", "-o", "f"];
    let run = get().args(options).args([server.url()]);
    run.run().ok();
    same(run.path("f"), &bytes);
}

#[test]
fn a_server_that_offers_mode_e_and_refuses_it_is_connected_to() {
    let bytes = content(SIZE, 90);
    let server = Scripted::new(bytes.clone(), |session, ask| {
        let refused = ask.verb == "MODE" && ask.rest == "E";
        if refused {
            session.reply("504 not implemented");
        }
        refused
    });
    is_right(&server, "2", &bytes);
    assert!(server.count("RETR") >= 1, "{:?}", server.commands());
}
