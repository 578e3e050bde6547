//! A client that lies: ranges of one upload that overlap, are missing, or come twice with other
//! bytes; a wrong digest; broken connections; a server that dies. The final name holds what stood
//! there before, or the file whose digest was declared.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::Site;
use crate::faults::content::{OLDER, composition};
use crate::faults::dice::one_of;
use crate::faults::run::{Outcome, leftovers};
use crate::faults::schedule::Build;

/// Hang guard of an answer; the server waits up to 10 s for another request of the upload.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Hang guard of the server's own recovery from a broken connection, or from an upload that was
/// active.
const RECOVERY: Duration = Duration::from_secs(60);

/// A request of the client, or a fault. `build` is 0 for the declared file, 1 for another.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    Range(Range<usize>, usize, Option<usize>), // Sends a range of a build; its connection breaks after some bytes
    /// Sends two ranges of builds at once: the second within the first, whose last byte follows
    /// then.
    Nested([Range<usize>; 2], [usize; 2]),
    /// Declares the upload complete, with the digest of a build; the server may be killed
    /// meanwhile.
    Complete(usize, bool),
    Kill,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RawSchedule {
    len: usize,
    older: bool,
    in_passing: bool, // Whether the digest is computed during reception
    in_pieces: bool,  // Whether a wrong digest is answered with digests of pieces, and the upload kept
    actions: Vec<Action>,
}

impl RawSchedule {
    pub(crate) fn new(seed: u64) -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let len = one_of(rng, &[1, 5_000, 65_536, 300_001, 1 << 20, 2_500_000]);
        let mut actions = Vec::new();
        for _ in 0..rng.random_range(1..4) {
            let mut ranges = pieces(rng, len);
            ranges.shuffle(rng);
            if rng.random_bool(0.3) {
                ranges.pop();
            }
            for range in ranges {
                actions.push(Action::Range(range, 0, None));
                if rng.random_bool(0.4) {
                    actions.push(lie(rng, len));
                }
            }
            let build = usize::from(rng.random_bool(0.25));
            actions.push(Action::Complete(build, rng.random_ratio(1, 6)));
        }
        Self { len, older: rng.random(), in_passing: rng.random_bool(0.7), in_pieces: rng.random(), actions }
    }

    fn bytes(&self, build: usize) -> &'static [u8] {
        Build { content: build, len: self.len }.bytes()
    }
}

/// Divides a file into one to eight ranges.
fn pieces(rng: &mut impl Rng, len: usize) -> Vec<Range<usize>> {
    let mut cuts: Vec<_> = (0..rng.random_range(0..8)).map(|_| rng.random_range(0..len)).collect();
    cuts.extend([0, len]);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|ends| ends[0]..ends[1]).collect()
}

fn range(rng: &mut impl Rng, within: &Range<usize>) -> Range<usize> {
    let start = rng.random_range(within.clone());
    start..rng.random_range(start..within.end) + 1
}

fn lie(rng: &mut impl Rng, len: usize) -> Action {
    let outer = range(rng, &(0..len));
    let build = usize::from(rng.random_bool(0.4));
    match rng.random_range(0..6) {
        0..3 => Action::Range(outer, build, None),
        3 => {
            let cut = rng.random_range(0..outer.len());
            Action::Range(outer, build, Some(cut))
        }
        4 => {
            let inner = range(rng, &outer);
            Action::Nested([outer, inner], [build, 1 - build])
        }
        _ => Action::Kill,
    }
}

struct RawRun {
    schedule: RawSchedule,
    site: Site,
    stood: Option<Vec<u8>>, // What the final name held after the last answer
}

pub(crate) fn play(seed: u64, dir: &Path) -> Outcome {
    let (schedule, site) = (RawSchedule::new(seed), Site::start(dir, None));
    let stood = schedule.older.then(|| OLDER.to_vec());
    if let Some(older) = &stood {
        fs::write(site.files.join("f"), older).unwrap();
    }
    let mut run = RawRun { schedule, site, stood };
    let actions = run.schedule.actions.clone();
    let all = actions
        .iter()
        .enumerate()
        .try_for_each(|(number, action)| run.act(action).map_err(|what| format!("action {number}: {what}")));
    let result = all.and_then(|()| run.complete_soundly());
    Outcome::Played(result, run.site.log())
}

impl RawRun {
    fn act(&mut self, action: &Action) -> Result<(), String> {
        let declared = match action {
            Action::Range(range, build, cut) => {
                let sent = cut.unwrap_or(range.len());
                if let Ok(mut stream) = self.send_range(range, *build, sent) {
                    if cut.is_some() {
                        // With or without a reset.
                        let _ = stream.shutdown(Shutdown::Write);
                    } else {
                        status(&mut stream)?;
                    }
                }
                None
            }
            Action::Nested([outer, inner], builds) => {
                if let Ok(mut first) = self.send_range(outer, builds[0], outer.len() - 1) {
                    status_of(self.send_range(inner, builds[1], inner.len()))?;
                    let last = &self.schedule.bytes(builds[0])[outer.end - 1..outer.end];
                    if first.write_all(last).is_ok() {
                        status(&mut first)?;
                    }
                }
                None
            }
            Action::Complete(build, is_killed) => {
                let stream = self.send_completion(*build);
                if *is_killed {
                    self.site.restart();
                }
                Some((*build, if *is_killed { None } else { status_of(stream)? }))
            }
            Action::Kill => {
                self.site.restart();
                None
            }
        };
        self.judge(declared)
    }

    /// Checks the final name after a completion with the digest of a build and its status, `None`
    /// if unknown; or after another action.
    fn judge(&mut self, declared: Option<(usize, Option<u16>)>) -> Result<(), String> {
        if let Some(line) = self.site.log().lines().find(|line| line.contains("panicked at")) {
            return Err(format!("a thread panics: {line}"));
        }
        let found = fs::read(self.site.files.join("f")).ok();
        let is_declared =
            declared.is_some_and(|(build, _)| found.as_deref() == Some(self.schedule.bytes(build)));
        let holds = match declared {
            Some((_, Some(201 | 204))) => is_declared,
            Some((_, None)) => is_declared || found == self.stood,
            _ => found == self.stood,
        };
        if !holds {
            let shown = found.map_or("nothing".to_owned(), |found| composition(&found));
            return Err(format!("the final name holds {shown}"));
        }
        self.stood = found;
        Ok(())
    }

    /// Sends the whole file as one range, and completes it: nothing of the earlier sequence
    /// prevents that. A range whose connection broke may be read only then, and begins the upload
    /// again.
    fn complete_soundly(&mut self) -> Result<(), String> {
        let (began, whole) = (Instant::now(), 0..self.schedule.len);
        loop {
            let sent = status_of(self.send_range(&whole, 0, whole.len()))?;
            let completed = status_of(self.send_completion(0))?;
            self.judge(Some((0, completed)))?;
            let left = leftovers(&self.site.files);
            if matches!(completed, Some(201 | 204)) && left.is_empty() {
                return Ok(());
            }
            if began.elapsed() > RECOVERY {
                return Err(format!(
                    "a sound upload is answered {sent:?} and {completed:?}, and leaves {left:?}"
                ));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sends the first `sent` bytes of a range.
    fn send_range(&self, range: &Range<usize>, build: usize, sent: usize) -> io::Result<TcpStream> {
        let (last, len) = (range.end - 1, self.schedule.len);
        let fields = format!(
            "Content-Range: bytes {}-{last}/{len}\r\nUpload-Complete: ?0\r\nContent-Length: {}\r\n",
            range.start,
            range.len()
        );
        self.send(&fields, &self.schedule.bytes(build)[range.start..range.start + sent])
    }

    /// Declares the upload complete, with the digest of a build.
    fn send_completion(&self, build: usize) -> io::Result<TcpStream> {
        let digest = STANDARD.encode(blake3::hash(self.schedule.bytes(build)).as_bytes());
        let pieces = if self.schedule.in_pieces { "Accept: application/metalink4+xml\r\n" } else { "" };
        let fields = format!(
            "Upload-Offset: {}\r\nUpload-Complete: ?1\r\nRepr-Digest: blake3=:{digest}:\r\nContent-Length: 0\r\n{pieces}",
            self.schedule.len
        );
        self.send(&fields, b"")
    }

    /// Sends a PATCH of the upload; an error means that the server has closed the connection.
    fn send(&self, fields: &str, body: &[u8]) -> io::Result<TcpStream> {
        let digest = if self.schedule.in_passing { "Want-Repr-Digest: blake3=10\r\n" } else { "" };
        let head = format!(
            "PATCH /f?upload={} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer sesame\r\n\
             Content-Type: application/partial-upload\r\nUpload-Length: {}\r\n{digest}{fields}\r\n",
            "a5".repeat(16),
            self.schedule.len
        );
        let mut stream = TcpStream::connect(self.site.address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        Ok(stream)
    }
}

fn status_of(sent: io::Result<TcpStream>) -> Result<Option<u16>, String> {
    sent.map_or(Ok(None), |mut stream| status(&mut stream))
}

/// Returns the status of the final answer; `None` if the server closes the connection without one,
/// an error if it hangs.
fn status(stream: &mut TcpStream) -> Result<Option<u16>, String> {
    let mut code = None;
    for line in BufReader::new(stream).lines() {
        match line {
            Ok(line) if line.is_empty() && !matches!(code, Some(100..200)) => return Ok(code),
            Ok(line) if line.is_empty() => code = None,
            Ok(line) if code.is_none() => {
                let number = line.split(' ').nth(1).and_then(|code| code.parse().ok());
                code = Some(number.ok_or_else(|| format!("no HTTP: {line}"))?);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(format!("no answer in {TIMEOUT:?}"));
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    Ok(None)
}
