//! GridFTP and FTP.

pub mod gsi;
