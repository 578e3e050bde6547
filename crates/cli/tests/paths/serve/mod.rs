//! `longhaul serve`: rates and times over long paths, and beside an attack.

mod initial_window;
#[path = "../../e2e/serve/long_path.rs"]
mod long_path;
mod starvation;
