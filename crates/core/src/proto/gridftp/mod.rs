//! FTP (RFC 959, 2228, 2428, 3659) and GridFTP (GFD.20, GFD.47): commands, replies, data blocks.
//!
//! A client sends a [`Command`] and receives a [`Reply`] through a [`ReplyReader`]. In MODE E the
//! data connections carry blocks, each with a [`BlockHeader`]; a [`TransferLedger`] detects the
//! completion of a transfer.

mod adat;
mod checksum;
mod command;
mod date;
mod extended_block;
mod facts;
mod features;
mod list_line;
mod listing;
mod markers;
mod passive_address;
mod reply;
mod signing_policy;
mod transfer_ledger;

pub use adat::{adat_token, decode_token, encode_token};
pub use checksum::{checksum_algorithm_name, parse_checksum};
pub use command::Command;
pub use date::{format_date, parse_date};
pub use extended_block::{BLOCK_HEADER, BlockHeader, MAX_CHANNELS};
pub use facts::{Facts, FileKind, parse_mdtm, parse_mlst, parse_size};
pub use features::Features;
pub use listing::{ListingEntries, ListingEntry, ListingForm};
pub use markers::parse_range_marker;
pub use passive_address::{parse_epsv, parse_pasv};
pub use reply::{MAX_LINE, MAX_REPLY, Reply, ReplyReader};
pub use signing_policy::{MAX_POLICY, PolicyDecision, SigningPolicy};
pub use transfer_ledger::{LedgerError, TransferLedger};
