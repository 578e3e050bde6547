//! Progress of several files on a terminal.

use std::time::Duration;

use crate::support::{get, program, slow_site, terminal};

#[test]
fn each_file_has_a_line_and_all_have_a_total_that_is_gone_at_the_end() {
    let (server, _) = slow_site(Duration::ZERO, 8 << 20);
    let urls: Vec<_> = (1..=3).map(|number| server.url(&format!("/{}/{number}", 8 << 20))).collect();
    let line = format!("stty cols 140; {}", program(&format!("get {}", urls.join(" "))));
    let Some(ended) = terminal(&get(), &line, &[], None) else { return };
    let text = ended.ok().stdout;
    assert!(text.contains("of 3 files done"), "{text}");
    for number in 1..=3 {
        // Each file's line has the name, a bar and a percentage.
        assert!(text.contains(&format!("{number} ")), "{text}");
    }
    assert!(text.matches("of 8 MiB").count() >= 3, "{text}");
    // Only the results remain, one per file.
    let left = text.rsplit("\u{1b}[2K").next().unwrap();
    assert!(!left.contains("files done") && !left.contains("ETA"), "{left}");
    assert!(left.lines().filter(|line| !line.trim().is_empty()).count() >= 3, "{left}");
}
