use super::*;
use crate::send::source_file::tests::overwrite;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

fn source(content: &[u8]) -> Arc<SourceFile> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    Arc::new(SourceFile::new(file, PathBuf::from("a-file")).unwrap())
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// Reads all that arrives on a thread.
fn read_all(mut far: TcpStream) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        far.read_to_end(&mut all).unwrap();
        all
    })
}

fn part(source: &Arc<SourceFile>, start: u64, length: u64) -> Piece {
    Piece::File { source: Arc::clone(source), start: Bytes::new(start), length: Bytes::new(length) }
}

fn pieces(source: &Arc<SourceFile>, size: u64) -> Vec<Piece> {
    let [head, none, mid] = [&b"head"[..], b"", b"mid"].map(|text| Piece::Text(text.to_vec()));
    vec![head, none, part(source, 0, size / 2), mid, part(source, size / 2, size - size / 2)]
}

fn expected(content: &[u8]) -> Vec<u8> {
    let (a, b) = content.split_at(content.len() / 2);
    [b"head", a, b"mid", b].concat()
}

#[test]
fn all_ways_of_sending_deliver_equal_bytes() {
    let content: Vec<u8> = (0..9_000_001u32).map(|i| ((i * 7) >> 3) as u8).collect();
    let source = source(&content);
    for nonblocking in [false, true] {
        let (near, far) = pair();
        let reader = read_all(far);
        near.set_nonblocking(nonblocking).unwrap();
        let mut outgoing = Outgoing::new(pieces(&source, content.len() as u64));
        let mut blocked = 0;
        loop {
            match outgoing.turn(&near).unwrap() {
                Turn::Done => break,
                Turn::More => {}
                Turn::Blocked => {
                    blocked += 1;
                    let mut polled = [rustix::event::PollFd::new(&near, rustix::event::PollFlags::OUT)];
                    rustix::event::poll(&mut polled, None).unwrap();
                }
            }
        }
        assert!(nonblocking || blocked == 0);
        assert_eq!(outgoing.sent().get(), content.len() as u64 + 7);
        drop(near);
        assert!(reader.join().unwrap() == expected(&content));
    }
    let mut outgoing = Outgoing::new(pieces(&source, content.len() as u64));
    let mut all = Vec::new();
    while !outgoing.is_done() {
        outgoing.fill(&mut all, Bytes::kib(256)).unwrap();
    }
    assert!(all == expected(&content));
}

#[test]
fn changed_file_or_closed_peer_ends_the_sending() {
    let size = 2 * TURN.get();
    for (tls, shrinks) in [(false, false), (true, false), (false, true), (true, true)] {
        let source = source(&vec![1; size as usize]);
        let (near, far) = pair();
        read_all(far);
        let mut outgoing = Outgoing::new([part(&source, 0, size)]);
        let mut step = || {
            if tls { outgoing.fill(&mut Vec::new(), TURN).map(|()| Turn::More) } else { outgoing.turn(&near) }
        };
        assert_eq!(step().unwrap(), Turn::More, "one turn is bounded even for a fast peer");
        if shrinks {
            source.file().set_len(TURN.get() + 10).unwrap()
        } else {
            overwrite(source.file(), b"2")
        }
        let error = step().unwrap_err().to_string();
        assert!(error.contains("changed while it was sent"), "{tls} {shrinks}: {error}");
        assert!(outgoing.sent() < Bytes::new(size));
    }
    let (near, far) = pair();
    drop(far);
    let source = source(&[0; 100_000]);
    let turn = |_| Outgoing::new([part(&source, 0, 100_000)]).turn(&near).err();
    let error = (0..50).find_map(turn);
    assert!(matches!(error, Some(SendError::Socket(_))), "{error:?}");
}

#[test]
fn long_text_is_sent_in_turns() {
    let text: Vec<u8> = (0..TURN.get() * 2 + 5).map(|i| (i % 251) as u8).collect();
    let (near, far) = pair();
    let reader = read_all(far);
    let mut outgoing = Outgoing::new([Piece::Text(text.clone()), Piece::Text(b"end".to_vec())]);
    assert_eq!(outgoing.turn(&near).unwrap(), Turn::More);
    assert_eq!(outgoing.sent(), TURN);
    while outgoing.turn(&near).unwrap() != Turn::Done {}
    drop(near);
    assert!(reader.join().unwrap() == [&text[..], b"end"].concat());
}

#[test]
fn small_reply_is_sent_at_once_only_while_its_file_is_in_memory() {
    // On a disk, because pages of tmpfs cannot be dropped.
    let mut file = tempfile::tempfile_in(".").unwrap();
    file.write_all(&[7; 300_000]).unwrap();
    file.sync_all().unwrap();
    let source = Arc::new(SourceFile::new(file, PathBuf::from("a-file")).unwrap());
    let outgoing = Outgoing::new(pieces(&source, 300_000));
    assert!(is_readable_at_once(source.file(), Bytes::new(1), Bytes::new(299_999)));
    assert!(is_readable_at_once(source.file(), Bytes::new(299_999), Bytes::new(9)), "beyond the end");
    if !outgoing.is_cached(Bytes::kib(512)) {
        return println!("skipped: this kernel does not report cached pages");
    }
    assert!(!outgoing.is_cached(Bytes::kib(64)), "it is too long");
    // The kernel keeps pages that another core is just adding to its lists; and what a read finds
    // missing, it reads from the disk, at times before that read returns.
    let is_dropped = || {
        rustix::fs::fadvise(source.file(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
        std::thread::sleep(Duration::from_millis(10));
        !outgoing.is_cached(Bytes::kib(512))
            && !is_readable_at_once(source.file(), Bytes::ZERO, Bytes::new(300_000))
    };
    assert!((0..1000).any(|_| is_dropped()));
}
