//! longhaul
fn main() {}
