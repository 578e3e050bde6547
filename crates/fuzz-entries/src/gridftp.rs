//! GridFTP: replies, blocks of MODE E, facts and listings, passive addresses.

use std::io::BufReader;
use std::net::{IpAddr, Ipv4Addr};

use longhaul_core::checksum::Algorithm;
use longhaul_core::proto::Malformed;
use longhaul_core::proto::gridftp::{
    BLOCK_HEADER, BlockHeader, Features, ListingEntries, ListingEntry, ListingForm, Reply, ReplyReader,
    TransferLedger, format_date, parse_checksum, parse_epsv, parse_mdtm, parse_mlst, parse_pasv,
    parse_range_marker, parse_size,
};
use longhaul_core::ranges::{ByteRange, RangeSet};

/// Reads replies at once and byte by byte, and all that a client reads from their text; writes them
/// and reads those.
pub fn gridftp_reply(bytes: &[u8]) {
    let whole = replies(bytes, usize::MAX);
    assert_eq!(replies(bytes, 1), whole);
    assert_eq!(replies(bytes, 7), whole);
    let Ok(read) = whole else { return };
    for reply in &read {
        assert!((100..700).contains(&reply.code) && !reply.lines.is_empty());
        assert!(!reply.to_string().chars().any(char::is_control));
        check_text(reply);
        // A line that begins with the reply's own code and a blank would end it.
        if !reply.lines.iter().any(|line| line.contains('\u{fffd}')) {
            assert_eq!(replies(&written(reply), usize::MAX), Ok(vec![reply.clone()]));
        }
    }
}

fn check_text(reply: &Reply) {
    let features = Features::parse(reply);
    assert!(reply.code == 211 || features == Features::default());
    let _ = (features.checksum(Algorithm::Sha256), features.restarts_streams());
    if let Some(checksum) = parse_checksum(reply, Algorithm::Md5) {
        assert_eq!(checksum.hex().len(), 32);
    }
    if let Some(date) = parse_mdtm(reply) {
        assert!(format_date(date).is_some());
    }
    let _ = (parse_size(reply), parse_mlst(reply));
    if let Some(marked) = parse_range_marker(reply) {
        assert!(marked.iter().all(|range| !range.is_empty()));
    }
}

fn replies(bytes: &[u8], piece: usize) -> Result<Vec<Reply>, Malformed> {
    let (mut reader, mut replies) = (ReplyReader::default(), Vec::new());
    for piece in bytes.chunks(piece.min(bytes.len().max(1))) {
        reader.feed(piece);
        while let Some(reply) = reader.next_reply()? {
            replies.push(reply);
        }
    }
    Ok(replies)
}

fn written(reply: &Reply) -> Vec<u8> {
    let last = reply.lines.len() - 1;
    let line = |(at, line): (usize, &String)| {
        format!("{}{}{line}\r\n", reply.code, if at == last { ' ' } else { '-' })
    };
    reply.lines.iter().enumerate().map(line).collect::<String>().into_bytes()
}

/// Reads headers, each after a byte that names its connection, into a ledger of one transfer.
pub fn gridftp_block(bytes: &[u8]) {
    let asked = ByteRange::new(0, 512 << 10);
    let mut ledger = TransferLedger::new(asked);
    let mut received = RangeSet::new();
    for block in bytes.chunks_exact(1 + BLOCK_HEADER) {
        let (Some((channel, _)), Some(header)) = (block.split_first(), block.last_chunk()) else { return };
        let Ok(header) = BlockHeader::decode(header) else { continue };
        assert_eq!(BlockHeader::decode(&header.encode()), Ok(header));
        assert!(header.channels().is_none() || header.payload().is_none());
        if ledger.announce(u64::from(*channel), header).is_err() {
            return;
        }
        if let Some(range) = header.payload() {
            assert!(range.end() <= asked.end(), "a block outside was accepted");
            assert!(received.gaps(range) == [range], "bytes were accepted twice");
            received.insert(range);
            ledger.receive(range);
        }
        assert!(ledger.channels().is_none_or(|channels| ledger.ended() <= channels));
        assert_eq!(ledger.finish().is_ok(), received.contains(asked));
    }
}

/// Reads a listing of each form at once and byte by byte; each line also as the fact line of MLST.
pub fn gridftp_facts(bytes: &[u8]) {
    for form in [ListingForm::Facts, ListingForm::Columns] {
        let whole = listing(form, bytes, 8 << 10);
        assert_eq!(listing(form, bytes, 1), whole);
        assert_eq!(listing(form, bytes, 7), whole);
        for entry in whole.iter().flatten() {
            let name = entry.name.as_slice();
            assert!(!matches!(name, b"" | b"." | b"..") && name.len() <= 255);
            assert!(!name.iter().any(|b| matches!(b, b'/' | b'\r' | b'\n' | 0)));
        }
    }
    for line in String::from_utf8_lossy(bytes).lines().take(50) {
        let lines = vec!["Listing".to_owned(), format!(" {line}"), "End".to_owned()];
        let _ = parse_mlst(&Reply { code: 250, lines });
    }
}

/// Returns the entries, read in pieces; `None` for a line that cannot be used. No error shows a
/// control character.
fn listing(form: ListingForm, bytes: &[u8], piece: usize) -> Vec<Option<ListingEntry>> {
    let entries = ListingEntries::new(BufReader::with_capacity(piece, bytes), form);
    let checked = entries
        .map(|entry| entry.inspect_err(|error| assert!(!error.to_string().chars().any(char::is_control))));
    checked.map(Result::ok).collect()
}

/// Reads replies as those to PASV and EPSV: no address is another host's.
pub fn gridftp_passive(bytes: &[u8]) {
    let Ok(replies) = replies(bytes, usize::MAX) else { return };
    for server in [IpAddr::V4(Ipv4Addr::LOCALHOST), "::ffff:127.0.0.1".parse().expect("an address")] {
        for reply in &replies {
            let one = [parse_pasv(reply, server), parse_epsv(reply, server)];
            for address in one.into_iter().flatten() {
                assert!(address.ip() == server && address.port() > 0);
            }
        }
    }
}
