//! Explanations of records.

use std::fmt::Write;
use std::fs;

use crate::explain::{explain, explained, fails};

const HEADER: &str = r#"{"record":"longhaul","version":2,"side":"get","what":"http://server/big","program":"longhaul 0.1.0","started":1795219200.0,"interval":0.1,"host":{"name":"near","kernel":"6.1.0","cores":2}}"#;

/// Ten seconds of a lossy download, with samples only or also with the transfer's own diagnosis.
fn record(found: bool) -> String {
    let mut lines = format!("{HEADER}\n");
    for tenth in 0..100 {
        let (at, moved, lost) = (f64::from(tenth) / 10.0, tenth * 1_000_000, tenth / 3);
        writeln!(
            lines,
            r#"{{"at":{at},"job":1,"event":"sample","moved":{moved},"sockets":{{"open":1,"unread":0,"rwin":9000000,"rtt":0.05,"data_rtt":0.05,"min_rtt":0.05,"retransmits":0,"out_of_order":{lost},"acked":0}},"streams":[]}}"#
        )
        .unwrap();
        if found && tenth == 20 {
            lines += "{\"at\":2.0,\"job\":1,\"event\":\"limited\",\"by\":\"slow-start\",\"ago\":2.0}\n";
        }
        if found && tenth == 50 {
            lines += "{\"at\":5.0,\"job\":1,\"event\":\"limited\",\"by\":\"disk\",\"ago\":1.0}\n";
        }
    }
    if found {
        lines += r#"{"at":9.9,"job":1,"event":"done","bytes":99000000,"seconds":9.9,"goodput_bps":80000000,"limited_by":"disk","shares":{"disk":0.6,"slow-start":0.4},"advice":["limited by the disk for 60 % of the time"]}"#;
        lines += "\n";
    }
    lines + "{\"at\":10.0,\"event\":\"end\",\"telemetry\":{\"samples\":100,\"dropped\":0,\"cpu\":0.001}}\n"
}

#[test]
fn record_of_samples_is_explained_from_them() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("r.jsonl"), record(false)).unwrap();
    let explained = explained(home.path(), &["r.jsonl"]);
    assert_eq!((explained.len(), &explained[0]["limited_by"]), (1, &"loss".into()), "{explained:?}");
    let shares = explained[0]["shares"].as_object().unwrap();
    let sum: f64 = shares.values().map(|share| share.as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 0.001 && shares["loss"].as_f64().unwrap() > 0.8, "{shares:?}");
    let last = explained[0]["timeline"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["limited_by"], &last["to"]), (&"loss".into(), &9.9.into()));
    let words = explain(home.path(), &["r.jsonl"]).ok().stdout;
    for word in ["http://server/big", "limited by packet loss for ", "arrived out of order", "BBR"] {
        assert!(words.contains(word), "{words}");
    }
}

#[test]
fn recorded_diagnosis_is_printed() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("r.jsonl"), record(true)).unwrap();
    let explained = &explained(home.path(), &["r.jsonl"])[0];
    assert_eq!((&explained["limited_by"], &explained["shares"]["disk"]), (&"disk".into(), &0.6.into()));
    let spans = explained["timeline"].as_array().unwrap();
    let ends: Vec<_> = spans.iter().map(|span| (span["from"].as_f64(), span["to"].as_f64())).collect();
    assert_eq!(ends, [(Some(0.0), Some(4.0)), (Some(4.0), Some(9.9))], "{spans:?}");
}

#[test]
fn unexplainable_files_are_reported_with_a_reason() {
    let home = tempfile::tempdir().unwrap();
    fails(home.path(), &["none.jsonl"], 66, &["none.jsonl"]);
    fs::write(home.path().join("note.txt"), "no record").unwrap();
    fails(home.path(), &["note.txt"], 65, &["note.txt is no record of longhaul"]);
    fs::write(home.path().join("text.pcap"), "no capture").unwrap();
    fails(home.path(), &["text.pcap"], 65, &["text.pcap is no capture", "tcpdump"]);
    fails(home.path(), &["missing.pcap"], 66, &["missing.pcap"]);
    fs::write(home.path().join("empty.jsonl"), format!("{HEADER}\n")).unwrap();
    let output = explain(home.path(), &["empty.jsonl"]);
    assert_eq!(output.status.code(), Some(65));
    assert!(output.stdout.contains("nothing was measured"), "{output:?}");
    fails(home.path(), &[], 64, &["required"]);
    fails(home.path(), &["note.txt", "--pid", "1"], 64, &["cannot be used with"]);
}
