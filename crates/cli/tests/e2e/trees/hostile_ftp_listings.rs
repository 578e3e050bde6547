//! Malicious MLSD listings: each bad entry is refused by name, and the rest is fetched.

use std::fs;

use crate::support::{Scripted, get, names};

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let bad = ["../up", "/etc/x", "..", "a/b", "../../d/x", "good.longhaul-part"];
    let mut lines =
        String::from("type=cdir;modify=20200102030405; .\r\ntype=pdir;modify=20200102030405; ..\r\n");
    for name in bad {
        lines += &format!("type=file;size=4;modify=20200102030405; {name}\r\n");
    }
    lines += "type=dir;modify=20200102030405; ../sub\r\n";
    lines += "type=OS.unix=symlink;modify=20200102030405; link\r\n";
    lines += "type=file;size=4;modify=20200102030405; good\r\n";
    let server = Scripted::new(b"good".to_vec(), move |session, command| {
        if command.verb != "MLSD" {
            return false;
        }
        session.reply("150 listing");
        let mut data = session.data(1);
        let sent = data.iter_mut().all(|data| data.raw(lines.as_bytes()));
        drop(data);
        session.reply(if sent { "226 complete" } else { "426 closed" });
        true
    });
    let run = get().args(["-r", "-o", "in/t", &format!("ftp://{}/d/", server.address)]);
    fs::create_dir(run.path("in")).unwrap();
    let ended = run.run();
    assert_eq!(ended.status.code(), Some(65), "{ended:?}");
    for word in ["../up", "/etc/x", "a/b", "../../d/x", "good.longhaul-part", "../sub"] {
        assert!(ended.stderr.contains(word), "'{word}' is missing: {ended:?}");
    }
    assert_eq!(names(&run.path("in/t")), ["good"]);
    assert_eq!((names(&run.path("in")), names(run.dir())), (vec!["t".to_owned()], vec!["in".to_owned()]));
    let paths = server.commands().into_iter().map(|(_, command)| command);
    let fetched: Vec<_> =
        paths.filter(|command| command.starts_with("RETR") || command.starts_with("ERET")).collect();
    assert!(!fetched.is_empty() && fetched.iter().all(|command| command.ends_with("/d/good")), "{fetched:?}");
}
