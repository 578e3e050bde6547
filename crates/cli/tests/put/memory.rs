//! What a put remembers of the path to a server. That the next one starts from it is tested in the lab, on a long path.

use std::fs;

use super::serve::to;
use crate::support::{Writable, content};

const FILE: &str = ".local/state/longhaul/paths.json";

#[test]
fn what_is_remembered_is_read_unless_the_user_says_otherwise() {
    let site = Writable::start();
    for (options, told) in [(&[][..], true), (&["--no-memory"], false)] {
        let run = to(&site, "/f", &content(1 << 20, 1)).args(options);
        fs::create_dir_all(run.path(FILE).parent().unwrap()).unwrap();
        fs::write(run.path(FILE), "{").unwrap();
        let ended = run.run().ok();
        let warned = |line: &serde_json::Value| line.to_string().contains("no path is remembered");
        assert_eq!(ended.json().iter().any(warned), told, "{ended:?}");
        assert_eq!(fs::read_to_string(run.path(FILE)).unwrap(), "{");
    }
}
