//! Files that others wrote, and what the kernel gives.

use std::collections::HashSet;
use std::fmt::Write;
use std::path::Path;

use longhaul_core::proto::metalink::{Metalink, MetalinkFile};
use longhaul_core::proto::netrc::netrc_login;
use longhaul_core::ranges::ByteRange;
use longhaul_core::tcp_info::{SIZE, TcpInfo};
use longhaul_engine::sink::journal::Journal;
use longhaul_lab::scenario::Scenario;
use longhaul_scope::record::Record;
use longhaul_scope::{draw, figures};

/// Reads a Metalink; writes it anew and reads that.
pub fn metalink(bytes: &[u8]) {
    let Ok(metalink) = Metalink::parse(bytes) else { return };
    let names: HashSet<String> = metalink.files.iter().map(|file| file.name.to_string()).collect();
    assert_eq!(names.len(), metalink.files.len(), "two files of one name");
    let mut text = "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">".to_owned();
    for file in &metalink.files {
        check_file(file);
        write_file(&mut text, file);
    }
    text.push_str("</metalink>");
    assert_eq!(Metalink::parse(text.as_bytes()), Ok(metalink));
}

fn check_file(file: &MetalinkFile) {
    assert!(!file.name.components().is_empty());
    for component in file.name.components() {
        let text = component.as_str();
        assert!(!text.is_empty() && !text.starts_with(['.', '-']) && !text.contains(['/', '\\']));
        assert!(!text.chars().any(char::is_control));
    }
    assert!(file.checksums.is_sorted_by(|a, b| a.algorithm > b.algorithm));
    assert!(file.sources.is_sorted_by_key(|source| source.priority));
    if let Some(pieces) = &file.pieces {
        assert!(pieces.length.get() > 0 && !pieces.digests.is_empty());
        assert!(pieces.digests.iter().all(|digest| digest.algorithm == pieces.algorithm));
        if let Some(size) = file.size {
            assert_eq!(pieces.digests.len() as u64, size.get().div_ceil(pieces.length.get()));
        }
    }
}

fn write_file(text: &mut String, file: &MetalinkFile) {
    let mut add = |piece: String| text.push_str(&piece);
    add(format!("<file name=\"{}\">", escape(&file.name.to_string())));
    if let Some(size) = file.size {
        add(format!("<size>{}</size>", size.get()));
    }
    for checksum in &file.checksums {
        add(format!("<hash type=\"{}\">{}</hash>", checksum.algorithm, checksum.hex()));
    }
    if let Some(pieces) = &file.pieces {
        add(format!("<pieces type=\"{}\" length=\"{}\">", pieces.algorithm, pieces.length.get()));
        pieces.digests.iter().for_each(|digest| add(format!("<hash>{}</hash>", digest.hex())));
        add("</pieces>".to_owned());
    }
    for source in &file.sources {
        let location =
            source.location.as_ref().map(|place| format!(" location=\"{place}\"")).unwrap_or_default();
        add(format!("<url priority=\"{}\"{location}>{}</url>", source.priority, escape(&source.url)));
    }
    add("</file>".to_owned());
}

/// Writes every character as a reference.
fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut escaped, c| {
        let _ = write!(escaped, "&#{};", u32::from(c));
        escaped
    })
}

/// Reads a .netrc; writes the login that it holds and reads that.
pub fn netrc(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for host in ["a", "example.org", ""] {
        let Ok(Some(login)) = netrc_login(&text, host, true) else { continue };
        let written = format!(
            "machine other login x password y machine {} login {} password {}",
            quote(host),
            quote(&login.user),
            quote(&login.password)
        );
        assert_eq!(netrc_login(&written, host, true), Ok(Some(login)));
    }
}

fn quote(word: &str) -> String {
    let escaped = [('\\', "\\\\"), ('"', "\\\""), ('\n', "\\n"), ('\r', "\\r"), ('\t', "\\t")];
    let word = escaped.iter().fold(word.to_owned(), |word, (c, with)| word.replace(*c, with));
    format!("\"{word}\"")
}

/// Reads a record of a transfer, and draws it.
pub fn record(bytes: &[u8]) {
    let Ok(records) = Record::read(bytes, Path::new("record.jsonl")) else { return };
    let named: Vec<_> = records.into_iter().map(|record| ("record".to_owned(), record)).collect();
    let svg = draw::svg(&figures::of_records(&named));
    assert!(svg.starts_with("<svg") && !svg.contains("NaN") && !svg.contains("inf,"));
}

/// Reads the journal of a partial file; writes it and reads that.
pub fn journal(bytes: &[u8]) {
    let Ok(journal) = Journal::decode(bytes) else { return };
    let committed = &journal.committed;
    assert!(committed.iter().all(|range: ByteRange| range.end() <= journal.size.get()));
    assert!(committed.total() <= journal.size);
    let written = journal.encode(committed).expect("a journal can be written");
    let read = Journal::decode(&written).expect("a journal that was written can be read");
    assert_eq!(read, journal);
}

/// Reads a scenario of the lab.
pub fn scenario(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(scenario) = Scenario::from_text(&text, Path::new("dir/file.toml"), &[]) else { return };
    assert!(!scenario.name.is_empty() && !scenario.runs.is_empty());
    assert_eq!(Scenario::from_text(&text, Path::new("dir/file.toml"), &[]).ok().as_ref(), Some(&scenario));
}

/// Reads a TCP_INFO of any length.
pub fn tcp_info(bytes: &[u8]) {
    let info = TcpInfo::from_bytes(bytes);
    assert_eq!(info.tcpi_rtt().is_some(), bytes.len() >= 72);
    assert_eq!(TcpInfo::from_bytes(&bytes[..bytes.len().min(SIZE)]), info);
    assert!(info.fields().count() <= SIZE);
    let _ = (info.rtt(), info.rcv_rtt(), info.min_rtt(), info.rcv_wnd(), info.cwnd());
    let _ = (info.pacing_rate(), info.delivery_rate(), info.bytes_acked());
}
