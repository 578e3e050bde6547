//! Data connections over IPv6: EPRT if the server connects, EPSV if the client connects (RFC 2428).

use std::net::{Ipv6Addr, TcpListener};

use crate::support::{Scripted, content, get, partial_files, same, skip};

/// Serves `bytes` at [::1]; `None` if this host has no IPv6.
fn serve(bytes: &[u8], features: Option<&'static str>) -> Option<Scripted> {
    if let Err(error) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        skip(&format!("no IPv6: {error}"));
        return None;
    }
    let play = move |session: &mut crate::support::Session, command: &crate::support::FtpCommand| {
        let Some(features) = features.filter(|_| command.verb == "FEAT") else { return false };
        session.reply(features);
        true
    };
    Some(Scripted::at(Ipv6Addr::LOCALHOST.into(), bytes.to_vec(), play))
}

fn fetch(server: &Scripted, bytes: &[u8]) {
    let run = get().args(["--streams", "3", "-o", "f", &server.url()]);
    run.run().ok();
    same(run.path("f"), bytes);
    assert!(partial_files(run.dir()).is_empty());
    assert_eq!(server.count("PORT") + server.count("PASV"), 0, "{:?}", server.commands());
}

#[test]
fn the_server_connects_over_ipv6() {
    let bytes = content((3 << 20) + 7, 1);
    let Some(server) = serve(&bytes, None) else { return };
    fetch(&server, &bytes);
    let eprt = server.commands().into_iter().find(|(_, command)| command.starts_with("EPRT "));
    assert!(eprt.as_ref().is_some_and(|(_, command)| command.starts_with("EPRT |2|::1|")), "{eprt:?}");
}

#[test]
fn the_client_connects_over_ipv6() {
    let bytes = content((20 << 20) + 7, 2);
    let plain = "211-Extensions\r\n SIZE\r\n MDTM\r\n REST STREAM\r\n EPSV\r\n211 End";
    let Some(server) = serve(&bytes, Some(plain)) else { return };
    fetch(&server, &bytes);
    assert!(server.count("EPSV") >= 2, "{:?}", server.commands());
}
