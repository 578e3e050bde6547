//! A server with faulty replies: the run succeeds without the affected feature, or ends in time with an error that names the fault.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::{SIZE, WITHOUT_MODE_E, fetch, is_right, is_soon_refused};
use crate::support::{Scripted, Session, content, get, same};

/// Answers one command with `reply`, and all others honestly; an empty verb is the greeting.
fn answering(
    verb: &'static str,
    reply: impl Fn(&mut Session) + Send + Sync + 'static,
) -> (Scripted, Vec<u8>) {
    let bytes = content(SIZE, 81);
    let server = Scripted::new(bytes.clone(), move |session, ask| {
        let asked = ask.verb == verb;
        if asked {
            reply(session);
        }
        asked
    });
    (server, bytes)
}

#[test]
fn malformed_reply_is_refused() {
    for garbage in
        ["SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n", "\0\0\r\n", "\r\n", "2200 x\r\n"]
    {
        let (server, _) = answering("", move |session| session.send(garbage.as_bytes()));
        is_soon_refused(&server, 76, &["three-digit code"]);
    }
}

#[test]
fn garbage_within_a_multi_line_reply_is_text() {
    let (server, bytes) = answering("FEAT", |session| {
        session.send(b"211-Extensions\r\n\xff\xfe PARALLEL\r\n226 complete\r\n550-gone\r\n\r\n PARALLEL\r\n ERET\n211 End\r\n");
    });
    is_right(&server, "2", &bytes);
}

#[test]
fn a_reply_line_without_end_is_refused() {
    let (server, _) = answering("FEAT", |session| {
        session.send(b"211-");
        for _ in 0..400 {
            session.send(&[b'x'; 1024]);
        }
    });
    is_soon_refused(&server, 76, &["64 KiB"]);
}

#[test]
fn a_reply_of_lines_without_end_is_refused() {
    let (server, _) = answering("FEAT", |session| {
        session.send(b"211-Extensions\r\n");
        for _ in 0..400 {
            session.send(&b" SIZE\r\n".repeat(150));
        }
    });
    is_soon_refused(&server, 76, &["KiB or"]);
}

#[test]
fn a_reply_that_drips_is_not_waited_for_long() {
    let (server, _) = answering("SIZE", |session| {
        session.send(b"213 ");
        for _ in 0..200 {
            session.send(b"1");
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    let (run, ended) = fetch(&server, "2", "0");
    assert_eq!(ended.status.code(), Some(75), "{ended:?}");
    assert!(ended.time < Duration::from_secs(20) && !run.path("f").exists(), "{ended:?}");
}

#[test]
fn silence_in_place_of_a_greeting_is_not_waited_for_long() {
    let (server, _) = answering("", |_| {});
    is_soon_refused(&server, 75, &["greeting"]);
}

#[test]
fn full_server_is_reported_as_unavailable() {
    let (server, _) = answering("", |session| {
        session.reply("421 too many users");
        session.close();
    });
    is_soon_refused(&server, 69, &["421 too many users"]);
}

#[test]
fn a_refused_login_is_denied_and_shows_no_password() {
    let (server, _) = answering("PASS", |session| session.reply("530 login incorrect"));
    let url = server.url().replace("ftp://", "ftp://ann:geheim@");
    let ended = get().args(["-o", "f", &url]).run();
    ended.fails(77, &["530", "ann"]);
    let ended = get().args(["-o", "f", &url]).run();
    assert!(!ended.stderr.contains("geheim") && !ended.stdout.contains("geheim"), "{ended:?}");
}

#[test]
fn a_missing_file_is_no_input() {
    let bytes = content(10, 1);
    let server = Scripted::new(bytes, |session, ask| {
        let asked = matches!(ask.verb.as_str(), "SIZE" | "MDTM" | "MLST" | "RETR" | "ERET");
        if asked {
            session.reply("550 No such file or directory");
        }
        asked
    });
    is_soon_refused(&server, 66, &["550"]);
}

#[test]
fn malformed_size_is_ignored() {
    for size in ["213 -1", "213 99999999999999999999999", "213 12 34", "213"] {
        let bytes = content(SIZE, 82);
        let server = Scripted::new(bytes.clone(), move |session, ask| {
            match ask.verb.as_str() {
                "SIZE" => session.reply(size),
                "MLST" | "MDTM" => session.reply("500 unknown"),
                _ => return false,
            }
            true
        });
        let (run, ended) = fetch(&server, "2", "1");
        // Without a size the file is fetched as one stream, or the run fails.
        match ended.status.code() {
            Some(0) => same(run.path("f"), &bytes),
            code => assert!(code == Some(76) && !run.path("f").exists(), "{size}: {ended:?}"),
        }
    }
}

#[test]
fn a_file_without_size_and_date_comes_as_one_stream() {
    let bytes = content(SIZE, 83);
    let server = Scripted::new(bytes.clone(), |session, ask| {
        let asked = matches!(ask.verb.as_str(), "SIZE" | "MDTM" | "MLST");
        if asked {
            session.reply("502 not implemented");
        }
        asked
    });
    is_right(&server, "2", &bytes);
}

#[test]
fn a_size_larger_than_the_file_never_completes() {
    let bytes = content(SIZE, 84);
    let larger = bytes.len() + 1000;
    let server = Scripted::new(bytes, move |session, ask| {
        match ask.verb.as_str() {
            "SIZE" => session.reply(&format!("213 {larger}")),
            "MLST" => session
                .reply(&format!("250-x\r\n Type=file;Size={larger};Modify=20200102030405; f\r\n250 End")),
            _ => return false,
        }
        true
    });
    let (run, ended) = fetch(&server, "2", "1");
    assert!(matches!(ended.status.code(), Some(65 | 75 | 76)), "{ended:?}");
    assert!(!run.path("f").exists());
}

#[test]
fn a_lost_control_connection_is_replaced_and_the_file_resumed() {
    let lost = AtomicUsize::new(0);
    // More than the first chunk, so that some data is committed.
    let bytes = content((80 << 20) + 9, 85);
    let server = Scripted::new(bytes.clone(), move |session, ask| {
        if ask.verb != "ERET" || ask.rest.starts_with("P 0 ") || lost.fetch_add(1, Ordering::SeqCst) > 0 {
            return false;
        }
        session.close();
        true
    });
    is_right(&server, "2", &bytes);
    let first_chunks = server.commands().iter().filter(|(_, ask)| ask.starts_with("ERET P 0 ")).count();
    assert_eq!(first_chunks, 1, "the first chunk is fetched once: {:?}", server.commands());
}

#[test]
fn a_control_connection_that_is_lost_behind_the_last_byte_costs_a_pipe_nothing() {
    let (fetched, lost) = (AtomicBool::new(false), AtomicBool::new(false));
    let bytes = content(SIZE, 86);
    let server = Scripted::new(bytes.clone(), move |session, ask| match ask.verb.as_str() {
        "FEAT" => {
            session.reply(WITHOUT_MODE_E);
            true
        }
        "RETR" => {
            fetched.store(true, Ordering::SeqCst);
            false
        }
        // The client queries the file's state after its last byte.
        "SIZE" | "MDTM" | "MLST" if fetched.load(Ordering::SeqCst) && !lost.swap(true, Ordering::SeqCst) => {
            session.close();
            true
        }
        _ => false,
    });
    let run = get().args(["-o", "-", &server.url()]);
    let output = run.command().output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, bytes);
    assert_eq!(server.count("RETR"), 1, "{:?}", server.commands());
}

#[test]
fn a_control_connection_that_is_lost_each_time_ends_the_run() {
    let (server, _) = answering("ERET", Session::close);
    is_soon_refused(&server, 75, &["closed the control connection"]);
}

#[test]
fn unsolicited_reply_is_refused_or_ignored() {
    let (server, bytes) = answering("TYPE", |session| {
        session.reply("200 done");
        session.reply("226 complete");
    });
    let (run, ended) = fetch(&server, "2", "1");
    match ended.status.code() {
        Some(0) => same(run.path("f"), &bytes),
        code => assert!(matches!(code, Some(65 | 66 | 75 | 76)) && !run.path("f").exists(), "{ended:?}"),
    }
}

#[test]
fn a_server_without_rest_sends_the_file_as_one_stream() {
    // With and without REST in the list of features.
    for features in [WITHOUT_MODE_E, "211-Extensions\r\n SIZE\r\n MDTM\r\n EPSV\r\n211 End", "500 unknown"] {
        let bytes = content((20 << 20) + 5, 91);
        let server = Scripted::new(bytes.clone(), move |session, ask| {
            match ask.verb.as_str() {
                "FEAT" => session.reply(features),
                "REST" => session.reply("502 not implemented"),
                _ => return false,
            }
            true
        });
        is_right(&server, "2", &bytes);
        assert_eq!(server.count("RETR"), 1, "{:?}", server.commands());
    }
}

#[test]
fn a_server_that_does_not_list_rest_sends_ranges() {
    let bytes = content((20 << 20) + 4, 92);
    let server = Scripted::new(bytes.clone(), |session, ask| {
        let asked = ask.verb == "FEAT";
        if asked {
            session.reply("500 unknown");
        }
        asked
    });
    is_right(&server, "2", &bytes);
    assert!(server.count("USER") >= 2, "{:?}", server.commands());
}

#[test]
fn a_file_that_grows_before_its_only_answer_is_not_cut_off() {
    let bytes = content(SIZE, 96);
    let server = Scripted::new(content(SIZE - 1000, 96), move |session, ask| {
        match ask.verb.as_str() {
            "FEAT" => session.reply("500 unknown"),
            "REST" => session.reply("502 not implemented"),
            "RETR" => {
                session.replace_file(bytes.clone());
                return false;
            }
            _ => return false,
        }
        true
    });
    let (run, ended) = fetch(&server, "2", "1");
    assert!(matches!(ended.status.code(), Some(65 | 76)), "{ended:?}");
    assert!(!run.path("f").exists());
}

#[test]
fn a_file_that_changes_and_changes_back_is_not_mixed() {
    let (old, new) = (content(20 << 20, 94), content(20 << 20, 95));
    let (retrievals, is_changed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let server = Scripted::new(old.clone(), move |session, ask| {
        match ask.verb.as_str() {
            "FEAT" => session.reply(WITHOUT_MODE_E),
            "MLST" => session.reply("500 unknown"),
            "MDTM" => {
                session.reply(&format!("213 2020010203040{}", u8::from(is_changed.load(Ordering::SeqCst))))
            }
            // Both streams receive bytes of the new file, but only one of them reports it.
            "RETR" if retrievals.fetch_add(1, Ordering::SeqCst) == 1 => {
                is_changed.store(true, Ordering::SeqCst);
                session.replace_file(new.clone());
                return false;
            }
            _ => return false,
        }
        true
    });
    let (run, ended) = fetch(&server, "2", "1");
    ended.fails(65, &["changed"]);
    let restored = old.clone();
    server.change(move |session, ask| {
        match ask.verb.as_str() {
            "FEAT" => {
                session.replace_file(restored.clone());
                session.reply(WITHOUT_MODE_E);
            }
            "MLST" => session.reply("500 unknown"),
            "MDTM" => session.reply("213 20200102030400"),
            _ => return false,
        }
        true
    });
    let run = run.again(["--streams", "2", "-o", "f", &server.url()]);
    run.run().ok();
    same(run.path("f"), &old);
}

#[test]
fn password_is_sent_only_on_request() {
    let (server, _) = answering("USER", |session| session.reply("530 use TLS"));
    let url = server.url().replace("ftp://", "ftp://ann:geheim@");
    get().args(["-o", "f", &url]).run().fails(77, &["530 use TLS", "ann"]);
    assert_eq!(server.count("PASS"), 0, "{:?}", server.commands());
    let (server, bytes) = answering("USER", |session| session.reply("230 no password needed"));
    let url = server.url().replace("ftp://", "ftp://ann:geheim@");
    let run = get().args(["-o", "f", &url]);
    run.run().ok();
    same(run.path("f"), &bytes);
    assert_eq!(server.count("PASS"), 0, "{:?}", server.commands());
}

#[test]
fn buffer_option_is_sent_to_the_server() {
    let bytes = content(SIZE, 93);
    let server = Scripted::new(bytes.clone(), |session, ask| {
        let asked = ask.verb == "SBUF";
        if asked {
            session.reply("500 unknown");
        }
        asked
    });
    is_right(&server, "2", &bytes);
    assert_eq!(server.count("SBUF"), 0, "{:?}", server.commands());
    let run = get().args(["--recv-buffer", "1MiB", "-o", "f", &server.url()]);
    run.run().ok();
    same(run.path("f"), &bytes);
    assert!(server.commands().iter().any(|(_, ask)| ask == "SBUF 1048576"), "{:?}", server.commands());
}

#[test]
fn a_plain_server_sends_ranges_over_several_logins() {
    let bytes = content((20 << 20) + 3, 92);
    let server = Scripted::new(bytes.clone(), |session, ask| {
        let asked = ask.verb == "FEAT";
        if asked {
            session.reply(WITHOUT_MODE_E);
        }
        asked
    });
    is_right(&server, "2", &bytes);
    let logins = server.count("USER");
    assert!(logins >= 2, "{:?}", server.commands());
}
