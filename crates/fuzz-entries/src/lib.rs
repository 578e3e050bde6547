//! One function for each parser of foreign bytes. Each feeds its argument to the parser and asserts
//! what must hold for any input: no panic, ranges inside totals, harmless names, and that what is
//! written back reads as equal.
//!
//! The targets in `fuzz/` call these functions with what libFuzzer finds; `tests/entries.rs` calls
//! them with random and with damaged valid bytes. A failed assertion is a bug in the parser.
//!
//! ```
//! use longhaul_fuzz_entries::ENTRIES;
//!
//! let (_, metalink) = ENTRIES.iter().find(|(name, _)| *name == "metalink").unwrap();
//! metalink(b"<metalink><file name='../f'/>");
//! ```

mod aria2;
mod bodies;
mod files;
mod gridftp;
mod heads;
mod listing;
mod lists;
mod native_messaging;
mod probe;

pub use aria2::aria2_rpc;
pub use bodies::{chunked, multipart};
pub use files::{journal, metalink, netrc, record, scenario, tcp_info};
pub use gridftp::{gridftp_block, gridftp_facts, gridftp_passive, gridftp_reply};
pub use heads::{content_range, disposition, link_and_digest, request_head, response_head};
pub use listing::listing;
pub use lists::{checksum_list, cookies};
pub use native_messaging::native_messaging;
pub use probe::{capture, iperf3, measurement};

/// A function that checks one parser with any bytes.
pub type Entry = fn(&[u8]);

/// All entries by name; each has a target of that name in `fuzz/` and a folder in `fuzz/corpus`.
pub const ENTRIES: &[(&str, Entry)] = &[
    ("aria2_rpc", aria2_rpc),
    ("capture", capture),
    ("checksum_list", checksum_list),
    ("chunked", chunked),
    ("content_range", content_range),
    ("cookies", cookies),
    ("disposition", disposition),
    ("gridftp_block", gridftp_block),
    ("gridftp_facts", gridftp_facts),
    ("gridftp_passive", gridftp_passive),
    ("gridftp_reply", gridftp_reply),
    ("iperf3", iperf3),
    ("journal", journal),
    ("link_and_digest", link_and_digest),
    ("listing", listing),
    ("measurement", measurement),
    ("metalink", metalink),
    ("multipart", multipart),
    ("native_messaging", native_messaging),
    ("netrc", netrc),
    ("record", record),
    ("request_head", request_head),
    ("response_head", response_head),
    ("scenario", scenario),
    ("tcp_info", tcp_info),
];
