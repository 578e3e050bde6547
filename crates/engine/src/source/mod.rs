//! Where bytes come from over the network.

pub mod http;
