//! What a path and its server allow, from few packets: plans of measurements, estimators, the verdict and its tables.
//!
//! ```text
//!  rtt            handshakes, echoes                -> minimum, median, jitter
//!  train_search   what to send next                 -> packet_train: rate, loss, reordering, queueing delay
//!  flow_rate      bytes of TCP connections in time  -> burst rate, steady rate
//!  server_limits  one connection beside several     -> the server's send buffer, its shaping
//!  report         all results, as `--json` has them -> verdict -> tables
//! ```
//!
//! `message` holds what measurement endpoint and client send each other; `iperf3` reads what iperf3 prints.

pub mod flow_rate;
pub mod iperf3;
pub mod message;
pub mod packet_train;
pub mod report;
pub mod rtt;
pub mod server_limits;
pub mod tables;
pub mod train_search;
pub mod verdict;
