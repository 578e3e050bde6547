//! Explanations of transfers with planted faults.
mod curl;
mod planted_faults;

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// Serves a file with kernel defaults: pacing would adapt to the path.
const SERVE: &str = "exec longhaul serve served --listen $LAB_SERVER:8080 --pace off";

/// Creates a home with a file of `size` bytes in `served`.
fn transfer_home(size: u64) -> TempDir {
    // In memory, if there is room: the disk must not be the limit.
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let home = tempfile::tempdir_in(place).unwrap();
    fs::create_dir(home.path().join("served")).unwrap();
    fs::File::create(home.path().join("served/file")).unwrap().set_len(size).unwrap();
    home
}
