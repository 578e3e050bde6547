//! Files with one name.

use std::time::Duration;

use crate::support::{content, get, partial_files, slow_site};

#[test]
fn second_url_of_one_name_fails_and_replaces_nothing() {
    for (options, size, rate, runs, error) in [
        (&[][..], 1000, usize::MAX, 1, "/7"),
        (&[], 3 << 20, 2 << 20, 1, "/7"),
        // Files of equal size and entity tag, one after the other.
        (&["--parallel", "1"], 1000, usize::MAX, 2, "7 exists"),
    ] {
        let [(server, _), (other, _)] = [Duration::from_millis(50); 2].map(|delay| slow_site(delay, rate));
        let other_size = if options.is_empty() { size + 1 } else { size };
        let urls = [server.url(&format!("/{size}/7")), other.url(&format!("/{other_size}/7"))];
        let run = get().args(options).args(urls);
        for _ in 0..runs {
            let ended = run.run().fails(73, &[error]);
            let there = std::fs::read(run.path("7")).unwrap();
            assert!(there == content(size, 7) || there == content(other_size, 7), "{} bytes", there.len());
            assert_eq!(partial_files(run.dir()), [""; 0]);
            let errors = ended.stderr.lines().filter(|line| line.starts_with("longhaul: ")).count();
            assert_eq!(errors, 1, "{ended:?}");
        }
    }
}
