//! A server with faulty replies: the run succeeds without the affected feature, or ends in time
//! with an error that names the fault.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::{
    SIZE, WITHOUT_MODE_E, arrives, fetch, fetch_in, is_refused, is_right, requests_later_chunk,
    sending_plainly,
};
use crate::support::{Ended, Get, Scripted, Session, content, get, same};

/// Enough for several ranges.
const RANGES: usize = (20 << 20) + 5;

#[test]
fn faulty_reply_is_refused() {
    let long_line = format!("211-{}", "x".repeat(400 << 10));
    let many_lines = format!("211-Extensions\r\n{}", " SIZE\r\n".repeat(60_000));
    for (verb, reply, code, word) in [
        ("", "SSH-2.0-OpenSSH_9.2", 76, "three-digit code"),
        ("", "HTTP/1.1 400 Bad Request\r\n", 76, "three-digit code"),
        ("", "\0\0", 76, "three-digit code"),
        ("", "", 76, "three-digit code"),
        ("", "2200 x", 76, "three-digit code"),
        ("FEAT", &long_line, 76, "64 KiB"),
        ("FEAT", &many_lines, 76, "KiB or"),
    ] {
        is_refused(&Scripted::answering(content(SIZE, 81), [(verb, reply)]), &[code], word);
    }
    let missing =
        ["SIZE", "MDTM", "MLST", "RETR", "ERET"].map(|verb| (verb, "550 No such file or directory"));
    is_refused(&Scripted::answering(content(10, 1), missing), &[66], "550");
}

/// Handles one command by `handle`, and all others honestly; an empty verb is the greeting.
fn handling(verb: &'static str, handle: impl Fn(&mut Session) + Send + Sync + 'static) -> Scripted {
    Scripted::new(content(SIZE, 81), move |session, command| {
        let is_handled = command.verb == verb;
        if is_handled {
            handle(session);
        }
        is_handled
    })
}

#[test]
fn whole_file_in_one_stream_is_refused_if_its_transfer_failed() {
    for reply in ["426 connection closed, transfer aborted", "451 local error in processing"] {
        is_refused(&sending_plainly(usize::MAX, move |session| session.reply(reply)), &[75], reply);
    }
}

#[test]
fn full_or_closing_server_ends_the_run() {
    let full = handling("", |session| {
        session.reply("421 too many users");
        session.close();
    });
    is_refused(&full, &[69], "421 too many users");
    is_refused(&handling("ERET", Session::close), &[75], "closed the control connection");
}

#[test]
fn reply_that_drips_is_not_waited_for_long() {
    let server = handling("SIZE", |session| {
        session.send(b"213 ");
        // Until the client closes.
        while session.send(b"1") {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let (_, ended) = fetch(&server, "0");
    ended.fails(75, &[]);
}

#[test]
fn faulty_or_missing_information_is_done_without() {
    let garbage = handling("FEAT", |session| {
        session.send(b"211-Extensions\r\n\xff\xfe PARALLEL\r\n226 complete\r\n550-gone\r\n\r\n PARALLEL\r\n ERET\n211 End\r\n");
    });
    is_right("garbage within a reply", &garbage);
    let unknown = ["SIZE", "MDTM", "MLST"].map(|verb| (verb, "502 not implemented"));
    is_right("neither size nor date", &Scripted::answering(content(SIZE, 83), unknown));
    let nothing = [("SIZE", "213 0"), ("MLST", "500 unknown")];
    is_right("a size of 0", &Scripted::answering(content(SIZE, 80), nothing));
    for size in ["213 -1", "213 99999999999999999999999", "213 12 34", "213"] {
        let replies = [("SIZE", size), ("MLST", "500 unknown"), ("MDTM", "500 unknown")];
        let server = Scripted::answering(content(SIZE, 82), replies);
        let (run, ended) = fetch(&server, "1");
        match ended.status.code() {
            Some(0) => same(run.path("f"), &server.file()),
            code => assert!(code == Some(76) && !run.path("f").exists(), "{ended:?}"),
        }
    }
    // Some servers report the end of a transfer twice, at once or before the reply to the next
    // command.
    let facts = format!("250-x\r\n Type=file;Size={SIZE};Modify=20200102030405; f\r\n250 End");
    let late = [
        ("FEAT", WITHOUT_MODE_E),
        ("TYPE", "226 sent\r\n200 done"),
        ("MLST", &*format!("226 sent\r\n{facts}")),
    ];
    let twice = sending_plainly(usize::MAX, |session| session.reply("226 sent\r\n226 sent\r\n250 quota"));
    let closing = sending_plainly(usize::MAX, |session| session.reply("226 sent\r\n221 bye"));
    for server in [twice, closing, Scripted::answering(content(SIZE, 81), late)] {
        arrives(get(), &server, &["--streams", "1", "--retries", "0"]);
    }
}

#[test]
fn size_larger_than_the_file_never_completes() {
    let larger = SIZE + 1000;
    let facts = format!("250-x\r\n Type=file;Size={larger};Modify=20200102030405; f\r\n250 End");
    let replies = [("SIZE", &*format!("213 {larger}")), ("MLST", &facts)];
    is_refused(&Scripted::answering(content(SIZE, 84), replies), &[65, 75, 76], "");
}

#[test]
fn lost_control_connection_is_replaced_and_the_file_resumed() {
    let lost = AtomicUsize::new(0);
    // More than the first chunk, so that some data is committed.
    let server = Scripted::new(content((80 << 20) + 9, 85), move |session, command| {
        let is_lost = requests_later_chunk(command) && lost.fetch_add(1, Ordering::SeqCst) == 0;
        if is_lost {
            session.close();
        }
        is_lost
    });
    is_right("a lost control connection", &server);
    let first_chunks =
        server.commands().iter().filter(|(_, command)| command.starts_with("ERET P 0 ")).count();
    assert_eq!(first_chunks, 1, "the first chunk is fetched once: {:?}", server.commands());
}

#[test]
fn control_connection_that_is_lost_behind_the_last_byte_costs_a_pipe_nothing() {
    for verb in ["RETR", "ERET"] {
        let (is_fetched, is_lost) = (AtomicBool::new(false), AtomicBool::new(false));
        let server = Scripted::new(content(SIZE, 86), move |session, command| {
            match command.verb.as_str() {
                "RETR" | "ERET" => is_fetched.store(true, Ordering::SeqCst),
                // The client queries the file's state after its last byte.
                "SIZE" | "MDTM" | "MLST"
                    if is_fetched.load(Ordering::SeqCst) && !is_lost.swap(true, Ordering::SeqCst) =>
                {
                    session.close();
                    return true;
                }
                _ => {}
            }
            verb == "RETR" && session.answer(command, &[("FEAT", WITHOUT_MODE_E)])
        });
        let output = get().args(["-o", "-", &server.url()]).command().output().unwrap();
        assert!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.stdout, *server.file());
        assert_eq!(server.count(verb), 1, "{:?}", server.commands());
    }
}

#[test]
fn plain_server_sends_ranges_over_several_logins_if_it_has_rest() {
    // With and without REST in the list of features.
    for features in [WITHOUT_MODE_E, "211-Extensions\r\n SIZE\r\n MDTM\r\n EPSV\r\n211 End", "500 unknown"] {
        let server = Scripted::answering(content(RANGES, 92), [("FEAT", features)]);
        is_right(features, &server);
        assert!(server.count("USER") >= 2, "{features}: {:?}", server.commands());
        let without = [("FEAT", features), ("REST", "502 not implemented")];
        let server = Scripted::answering(content(RANGES, 91), without);
        is_right(features, &server);
        assert_eq!(server.count("RETR"), 1, "{features}: {:?}", server.commands());
    }
}

#[test]
fn file_that_grows_before_its_only_answer_is_not_cut_off() {
    let grown = content(SIZE + 1000, 96);
    let server = Scripted::new(content(SIZE, 96), move |session, command| {
        if command.verb == "RETR" {
            session.replace_file(grown.clone());
        }
        session.answer(command, &[("FEAT", "500 unknown"), ("REST", "502 not implemented")])
    });
    is_refused(&server, &[65, 76], "");
}

#[test]
fn file_that_changes_and_changes_back_is_not_mixed() {
    let (old, new) = (content(20 << 20, 94), content(20 << 20, 95));
    let (retrievals, is_changed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let server = Scripted::new(old.clone(), move |session, command| {
        // Both streams receive bytes of the new file, but only one of them reports it.
        if command.verb == "RETR" && retrievals.fetch_add(1, Ordering::SeqCst) == 1 {
            is_changed.store(true, Ordering::SeqCst);
            session.replace_file(new.clone());
        }
        let time = format!("213 2020010203040{}", u8::from(is_changed.load(Ordering::SeqCst)));
        session.answer(command, &[("FEAT", WITHOUT_MODE_E), ("MLST", "500 unknown"), ("MDTM", &time)])
    });
    let (run, ended) = fetch_in(get(), &server, &["--streams", "2", "--retries", "1"]);
    ended.fails(65, &["changed"]);
    let restored = old.clone();
    server.change(move |session, command| {
        if command.verb == "FEAT" {
            session.replace_file(restored.clone());
        }
        let time = "213 20200102030400";
        session.answer(command, &[("FEAT", WITHOUT_MODE_E), ("MLST", "500 unknown"), ("MDTM", time)])
    });
    arrives(run, &server, &["--streams", "2"]);
    assert!(*server.file() == old);
}

/// Fetches with the login of ann, whose password is never shown.
fn fetch_as_ann(server: &Scripted) -> (Get, Ended) {
    let run = get().args(["-o", "f", &server.url().replace("ftp://", "ftp://ann:geheim@")]);
    let ended = run.run();
    assert!(!format!("{ended:?}").contains("geheim"), "{ended:?}");
    (run, ended)
}

#[test]
fn password_is_sent_only_on_request_and_never_shown() {
    for (verb, reply, passwords) in [("PASS", "530 login incorrect", 1), ("USER", "530 use TLS", 0)] {
        let server = Scripted::answering(content(SIZE, 81), [(verb, reply)]);
        fetch_as_ann(&server).1.fails(77, &[reply, "ann"]);
        assert_eq!(server.count("PASS"), passwords, "{:?}", server.commands());
    }
    let server = Scripted::answering(content(SIZE, 81), [("USER", "230 no password needed")]);
    let (run, ended) = fetch_as_ann(&server);
    ended.ok();
    same(run.path("f"), &server.file());
    assert_eq!(server.count("PASS"), 0, "{:?}", server.commands());
}

#[test]
fn buffer_option_is_sent_to_the_server() {
    for (options, sent) in [(&[][..], None), (&["--recv-buffer", "1MiB"], Some("SBUF 1048576"))] {
        let server = Scripted::answering(content(SIZE, 93), [("SBUF", "500 unknown")]);
        arrives(get(), &server, options);
        let commands = server.commands();
        let buffers = commands.iter().find(|(_, command)| command.starts_with("SBUF"));
        assert_eq!(buffers.map(|(_, command)| command.as_str()), sent);
    }
}

#[test]
fn data_connections_reach_the_server_whatever_its_passive_replies_name() {
    for (epsv, pasv) in [
        ("500 unknown", "227 Entering Passive Mode (10,0,0,5,"),
        ("500 unknown", "227 Entering Passive Mode (127, 0, 0, 3, "),
        ("229 Extended Passive Mode OK", "227 =0,0,0,0,"),
        // A port without a listener.
        ("229 Entering Extended Passive Mode (|||1|)", "227 Entering Passive Mode (127,0,0,1,"),
    ] {
        let server = Scripted::new(content(RANGES, 86), move |session, command| {
            match command.verb.as_str() {
                "EPSV" => session.reply(epsv),
                "PASV" => {
                    let [high, low] = session.listen().to_be_bytes();
                    session.reply(&format!("{pasv}{high},{low})."));
                }
                _ => return session.answer(command, &[("FEAT", WITHOUT_MODE_E)]),
            }
            true
        });
        is_right(epsv, &server);
        let commands = server.commands();
        assert!(server.count("EPSV") <= server.count("USER"), "what fails is not repeated: {commands:?}");
    }
    let none = "227 Entering Passive Mode (1,2,3)";
    let replies = [("FEAT", WITHOUT_MODE_E), ("EPSV", none), ("PASV", none)];
    is_refused(&Scripted::answering(content(SIZE, 86), replies), &[76], "no address");
}

#[test]
fn control_connection_that_is_lost_after_the_data_costs_nothing() {
    type End = fn(&mut Session);
    let ends: [(usize, End); 3] =
        [(usize::MAX, Session::close), (usize::MAX, Session::until_closed), (1, Session::close)];
    for (sessions, end) in ends {
        let server = sending_plainly(sessions, end);
        let ended = arrives(get(), &server, &["--streams", "1", "--retries", "0"]);
        assert!(ended.stderr.contains("no reply confirmed the data"), "{ended:?}");
        assert_eq!(server.count("RETR"), 1, "{:?}", server.commands());
    }
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
        arrives(get(), &server, &["--streams", "2", "--connect-timeout", "1s"]);
        assert!(server.count(passive) >= 1, "{reply}: {:?}", server.commands());
    }
}
