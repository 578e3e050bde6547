//! End-to-end tests of `longhaul get` over FTP and GridFTP, against real servers and a scripted server with faults.

mod addresses;
mod checksums;
mod faulty;
mod logins;
mod probing;
mod real_servers;
mod servers;
