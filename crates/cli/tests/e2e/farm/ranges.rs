//! A huge file in ranges, by several workers: equal bytes, or an error that names what differs.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::{of_plan, plan, status, work};
use crate::support::{
    File, Server, Writable, age, content, fetched_and_unchanged, longhaul, names, same, sha256,
};

const SIZE: usize = (20 << 20) + 12_345;

#[test]
fn ranges_of_one_file_are_fetched_by_three_workers_and_joined() {
    let server = Writable::hidden();
    let bytes = content(SIZE, 5);
    fs::write(server.path("f"), &bytes).unwrap();
    age(&server.path(""), 1_100_000_000);
    let url = server.url("/f");
    let run = plan().args(["--unit-size", "1MiB", "-o", "p", &url, "here"]);
    assert!(run.run().ok().stdout.contains("p: 22 units of 1 file"));
    let workers = [(); 3].map(|()| work(run.dir(), &["-q", "--limit", "40Mbit"]));
    let running: Vec<_> = workers.iter().map(|worker| worker.start()).collect();
    running.into_iter().for_each(|worker| drop(worker.end().ok()));
    same(run.path("here/f"), &bytes);
    let found = fs::metadata(run.path("here/f")).unwrap();
    assert_eq!((found.mtime(), found.mode() & 0o400), (1_100_000_000, 0o400));
    assert_eq!(names(&run.path("here")), ["f"]);
    let now = status(run.dir());
    assert_eq!((&now["done"], &now["bytes_done"], &now["files"]), (&22.into(), &now["bytes"], &1.into()));
    assert_eq!(now["bytes"], SIZE);
    let verified = of_plan(run.dir(), "verify", &[]).ok();
    assert!(verified.stdout.contains("1 files are as planned"), "{verified:?}");
    assert_eq!(of_plan(run.dir(), "manifest", &[]).ok().stdout, format!("{}  f\n", sha256(&bytes)));
    // A file that is there is not fetched in ranges.
    let run = run.again(["--unit-size", "1MiB", "-o", "q", &url, "here"]);
    assert!(run.run().ok().stdout.contains("q: 1 unit of 1 file"));
    let again = longhaul("work").args([run.path("q").to_str().unwrap(), "--json"]).run().ok();
    assert_eq!(fetched_and_unchanged(&again), (vec![], vec!["f".to_owned()]));
}

#[test]
fn source_that_is_changed_between_ranges_is_named_and_never_mixed() {
    let server = Writable::start();
    let (planned, changed) = (content(SIZE, 5), content(SIZE, 6));
    // What proves the ranges to be of one file: the time of the plan, or the first range's entity tag and the checksum.
    for by_time in [true, false] {
        fs::write(server.path("f"), &planned).unwrap();
        age(&server.path(""), 1_100_000_000);
        let url = server.url("/f");
        let list = format!("{url}\n size={SIZE}\n checksum=sha256={}\n", sha256(&planned));
        let run = plan().file("list", list).args(["--unit-size", "1MiB", "-o", "p"]);
        let run = if by_time { run.args([&*url, "here"]) } else { run.args(["-i", "list", "here"]) };
        run.run().ok();
        let some_done = || status(run.dir())["done"].as_u64().is_some_and(|done| done > 2);
        let slow = work(run.dir(), &["--limit", "20Mbit", "--parallel", "1"]);
        slow.signalled(rustix::process::Signal::TERM, "some ranges are there", some_done)
            .fails(75, &["run it"]);
        fs::write(server.path("f"), &changed).unwrap();
        age(&server.path(""), 1_200_000_000);
        work(run.dir(), &[]).run().fails(1, &["units have failed"]);
        let why = status(run.dir())["failures"][0]["why"].as_str().unwrap().to_owned();
        assert!(why.contains("/f was changed"), "{why}");
        assert!(by_time || why.contains("other ranges of it were"), "{why}");
        assert!(!run.path("here/f").exists());
        // The source is as it was planned again.
        fs::write(server.path("f"), &planned).unwrap();
        age(&server.path(""), 1_100_000_000);
        of_plan(run.dir(), "retry", &[]).ok();
        work(run.dir(), &[]).run().ok();
        same(run.path("here/f"), &planned);
    }
}

#[test]
fn file_with_another_checksum_or_without_a_validator_gets_no_name() {
    let bytes = content(SIZE, 7);
    let served = bytes.clone();
    let server = Server::replying(move |request| {
        let mut file = File::new(served.clone());
        if request.target == "/weak" {
            file.fields = "ETag: W/\"1\"\r\n".to_owned();
            file.etag = None;
        }
        let (head, body) = file.answer(request);
        [head.as_bytes(), body].concat()
    });
    let (right, wrong) = (sha256(&bytes), sha256(b"planned"));
    for (path, checksum, unit, word) in
        [("/f", &wrong, 21, "has the digest"), ("/weak", &right, 0, "states neither a strong entity tag")]
    {
        let list = format!("{}\n out=f\n size={SIZE}\n checksum=sha256={checksum}\n", server.url(path));
        let run = plan().file("list", list).args(["-i", "list", "--unit-size", "1MiB", "-o", "p", "here"]);
        run.run().ok();
        work(run.dir(), &[]).run().fails(1, &["failed"]);
        let failure = status(run.dir())["failures"][0].clone();
        assert_eq!(failure["unit"], unit, "{failure}");
        assert!(failure["why"].as_str().unwrap().contains(word), "{failure}");
        assert!(!run.path("here/f").exists());
    }
}
