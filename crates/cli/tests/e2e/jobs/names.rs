//! Files with one name.

use std::time::Duration;

use crate::support::{content, get, of_size, partial_files, site, slow_site};

#[test]
fn second_url_of_one_name_fails_and_replaces_nothing() {
    for (size, rate) in [(1000, usize::MAX), (3 << 20, 2 << 20)] {
        let (server, _) = slow_site(Duration::from_millis(50), rate);
        let (other, _) = slow_site(Duration::from_millis(50), rate);
        let run = get().args([server.url(&format!("/{size}/7")), other.url(&format!("/{}/7", size + 1))]);
        let ended = run.run();
        assert_eq!(ended.status.code(), Some(73), "{ended:?}");
        let there = std::fs::read(run.path("7")).unwrap();
        assert!(there == of_size(size, 7) || there == content(size + 1, 7), "{} bytes", there.len());
        assert!(partial_files(run.dir()).is_empty(), "{:?}", partial_files(run.dir()));
        assert_eq!(
            ended.stderr.lines().filter(|line| line.starts_with("longhaul: ")).count(),
            1,
            "{ended:?}"
        );
    }
}

#[test]
fn one_name_of_two_urls_gives_one_file_and_one_failure_however_often() {
    // Both files have equal size and entity tag.
    let [(server, _), (other, _)] = [Duration::ZERO; 2].map(site);
    let run = get().args(["--parallel", "1", &server.url("/1000/3"), &other.url("/1000/3")]);
    for _ in 0..2 {
        run.run().fails(73, &["3 exists"]);
    }
}
