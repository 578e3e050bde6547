//! Records: what a transfer told about itself, one JSON object a line.

pub mod schema;
