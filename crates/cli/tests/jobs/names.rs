//! Files of one name.

use std::time::Duration;

use super::support::{content, get, of_size, partial_files, site, slow_site};

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
fn one_url_twice_gives_one_file_and_one_failure() {
    let (server, _) = site(Duration::from_millis(20));
    let url = server.url("/100000/3");
    for parallel in ["1", "3"] {
        let run = get().args(["--parallel", parallel, &url, &url]);
        let ended = run.run();
        assert_eq!(ended.status.code(), Some(73), "{ended:?}");
        super::support::same(run.path("3"), &of_size(100_000, 3));
    }
}
