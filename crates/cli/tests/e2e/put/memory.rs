//! The path memory of a put. The lab tests its use by the next put, on a long path.

use std::fs;

use super::serve::to;
use crate::support::{Writable, content};

const FILE: &str = ".local/state/longhaul/paths.json";

#[test]
fn path_memory_is_read_unless_disabled() {
    let site = Writable::start();
    for (options, messages) in [(&[][..], true), (&["--no-memory"], false)] {
        let run = to(&site, "/f", &content(1 << 20, 1)).args(options);
        fs::create_dir_all(run.path(FILE).parent().unwrap()).unwrap();
        fs::write(run.path(FILE), "{").unwrap();
        let ended = run.run().ok();
        let warned = |line: &serde_json::Value| line.to_string().contains("no path is remembered");
        assert_eq!(ended.json().iter().any(warned), messages, "{ended:?}");
        assert_eq!(fs::read_to_string(run.path(FILE)).unwrap(), "{");
    }
}
