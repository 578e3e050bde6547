//! Measures the limits of a path and its server with few packets: plans of measurements,
//! estimators, the verdict and its tables.
//!
//! ```text
//!  rtt            handshakes, echoes                -> minimum, median, jitter
//!  train_search   plan of the next train            -> packet_train: rate, loss, reordering, queueing delay
//!  flow_rate      bytes of TCP connections in time  -> burst rate, steady rate
//!  server_limits  one connection and several        -> the server's send buffer, its shaping
//!  report         all results, as in `--json`       -> verdict -> tables
//! ```
//!
//! `message` holds the messages of the measurement endpoint and its client; `iperf3` parses the
//! output of iperf3.

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
