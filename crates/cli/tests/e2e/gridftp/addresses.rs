//! Data connections over IPv6: EPRT if the server connects, EPSV if the client connects (RFC 2428).

use std::net::{Ipv6Addr, TcpListener};

use crate::support::{Scripted, content, get, partial_files, same, skip};

#[test]
fn data_connections_are_opened_over_ipv6_from_both_ends() {
    if let Err(error) = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)) {
        return skip(&format!("no IPv6: {error}"));
    }
    let plain = [("FEAT", "211-Extensions\r\n SIZE\r\n MDTM\r\n REST STREAM\r\n EPSV\r\n211 End")];
    for (size, is_plain, command, least) in
        [((3 << 20) + 7, false, "EPRT |2|::1|", 1), ((20 << 20) + 7, true, "EPSV", 2)]
    {
        let server = Scripted::at(Ipv6Addr::LOCALHOST.into(), content(size, 1), move |session, command| {
            is_plain && session.answer(command, &plain)
        });
        let run = get().args(["--streams", "3", "-o", "f", &server.url()]);
        run.run().ok();
        same(run.path("f"), &server.file());
        assert!(partial_files(run.dir()).is_empty());
        let commands = server.commands();
        assert_eq!(server.count("PORT") + server.count("PASV"), 0, "{commands:?}");
        assert!(
            commands.iter().filter(|(_, sent)| sent.starts_with(command)).count() >= least,
            "{commands:?}"
        );
    }
}
