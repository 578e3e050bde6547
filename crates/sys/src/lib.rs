//! Safe wrappers around system calls: the only unsafe code in Longhaul, one small file per subject.
//!
//! Calls that `rustix` or `socket2` already wrap safely are used directly.
//!
//! ```
//! use std::net::{TcpListener, TcpStream};
//! use std::time::Duration;
//!
//! use longhaul_sys::tcp_info;
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let client = TcpStream::connect(listener.local_addr()?)?;
//!
//! // getsockopt(TCP_INFO), without a pointer or a length in the call.
//! let info = tcp_info::read(&client)?;
//! assert!(info.rtt().is_some_and(|rtt| rtt.get() < Duration::from_secs(1)));
//! // A file that is no socket gives the kernel's error.
//! assert!(tcp_info::read(std::fs::File::open("/dev/null")?).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod atomic_file;
pub mod cachestat;
pub mod chunk;
pub mod datagram_batch;
pub mod direct_io;
pub mod ethtool;
pub mod file_map;
pub mod host;
pub mod host_route;
pub mod if_exists;
pub mod link;
pub mod local_time;
pub mod memory;
pub mod netns;
pub mod pressure;
pub mod process;
pub mod qdisc;
pub mod ring;
pub mod rtnetlink;
pub mod send_options;
pub mod sock_diag;
pub mod sockopt;
pub mod standard_streams;
pub mod tcp_info;
pub mod tun;
pub mod user;
pub mod write_back;
