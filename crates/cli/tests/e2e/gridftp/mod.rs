//! End-to-end tests of `longhaul get` over FTP and GridFTP, against real servers and a scripted
//! server with faults.

mod faulty;
mod real_servers;
mod scripted;
