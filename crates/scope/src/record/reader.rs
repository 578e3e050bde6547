//! Reads complete and truncated records.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use longhaul_core::event::{Event, JobEvent, RunDone};
use longhaul_core::failure::{Failure, FailureKind};
use serde::Deserialize;
use serde_json::Value;

use super::jobs::Jobs;
use super::lines::{LONGEST_LINE, Lines};
use super::schema::{End, Header, MAGIC, Sample, VERSION};

/// Maximum bytes of the first line; a header has a few hundred.
const LONGEST_HEADER: u64 = 64 << 10;

/// One job of a record.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The record's first line, with the URL of this job if the record holds several.
    pub header: Header,
    /// The samples by time in seconds since the record's start.
    pub samples: Vec<(f64, Sample)>,
    /// All other events.
    pub events: Vec<JobEvent<'static>>,
    /// What limited all jobs of the record together, if it holds several.
    pub run: Option<Box<RunDone>>,
    /// The record's last line; `None` if the record is truncated.
    pub end: Option<End>,
    /// Damage of the record, in a phrase such as "cut off in line 812".
    pub damage: Option<String>,
}

impl Record {
    /// Reads the first job of the record at `path`, up to the record's end or first damage.
    ///
    /// # Errors
    /// The record is unreadable, empty, not a record, or of a newer version.
    pub fn load(path: &Path) -> Result<Self, Failure> {
        // `load_jobs` never returns an empty list.
        let mut jobs = Self::load_jobs(path)?;
        Ok(jobs.swap_remove(0))
    }

    /// Reads all jobs of the record at `path`, at least one, in the order of their first events.
    ///
    /// # Errors
    /// As [`Record::load`].
    pub fn load_jobs(path: &Path) -> Result<Vec<Self>, Failure> {
        let fail = |error| not_read(path, &error);
        let file = File::open(path).map_err(fail)?;
        if file.metadata().map_err(fail)?.is_dir() {
            return Err(fail(io::ErrorKind::IsADirectory.into()));
        }
        Self::read(BufReader::with_capacity(256 << 10, file), path)
    }

    /// Returns the job's [`Event::Done`] or [`Event::Error`]; `None` if neither was recorded.
    pub fn outcome(&self) -> Option<&Event> {
        let ends = |event: &&Event| matches!(event, Event::Done(_) | Event::Error { .. });
        self.events.iter().rev().map(|line| &*line.event).find(ends)
    }

    /// Reads a record from a stream, like [`load`](Self::load); `path` only names it in errors.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn read(from: impl BufRead, path: &Path) -> Result<Vec<Self>, Failure> {
        let fail = |error| not_read(path, &error);
        let mut lines = Lines::new(from);
        let first = lines.next(LONGEST_HEADER).map_err(fail)?;
        let header = header(first, path)?;
        let mut jobs = Jobs::default();
        let mut number = 1;
        let damage = loop {
            let ended = jobs.end.is_some();
            number += 1;
            let damage = match lines.next(LONGEST_LINE) {
                Ok([]) if ended => break None,
                Ok([]) => Some("without an end: its writer was killed, or still writes".into()),
                Ok(_) if ended => Some(format!("goes on after its end, in line {number}")),
                Ok(text) => jobs.add(text).err().map(|damage| damage.in_line(number)),
                Err(error) => Some(format!("cannot be read from line {number} on: {error}")),
            };
            if damage.is_some() {
                break damage;
            }
        };
        Ok(jobs.records(&header, damage))
    }
}

fn not_read(path: &Path, error: &io::Error) -> Failure {
    Failure::new(FailureKind::NotFound, format!("cannot read the record {}: {error}", path.display()))
}

/// Parses the header; `path` names the file in errors.
fn header(first: &[u8], path: &Path) -> Result<Header, Failure> {
    #[derive(Deserialize)]
    struct FirstLine {
        record: String,
        version: Value,
    }
    let path = path.display();
    let unusable = |message: String| Err(Failure::new(FailureKind::Data, message));
    let no_record = |why: &str| unusable(format!("{path} is no record of longhaul: {why}"));
    if first.is_empty() {
        return unusable(format!("the record {path} is empty: the transfer has written nothing"));
    }
    let mark = serde_json::from_slice::<FirstLine>(first).ok().filter(|mark| mark.record == MAGIC);
    let Some(mark) = mark else {
        let cut = !first.ends_with(b"\n") && first.starts_with(format!(r#"{{"record":"{MAGIC}""#).as_bytes());
        let why = match cut {
            true if first.len() as u64 >= LONGEST_HEADER => "its first line is too long",
            true => "it is cut off in its first line",
            false => "its first line does not say so",
        };
        return no_record(why);
    };
    match &mark.version {
        Value::Number(found) if found.as_f64().is_some_and(|found| found > f64::from(VERSION)) => {
            return unusable(format!(
                "the record {path} is of version {found}, and this program reads up to version {VERSION}: update longhaul"
            ));
        }
        Value::Number(found) if found.as_u64().is_some_and(|found| found > 0) => {}
        found => {
            let found: String = found.to_string().chars().take(40).collect();
            return no_record(&format!("there is no version {found} of them"));
        }
    }
    serde_json::from_slice(first).or_else(|error| no_record(&format!("its first line is wrong: {error}")))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::super::jobs::MAX_JOBS;
    use super::super::schema::StreamSample;
    use super::*;

    const HEADER: &str = r#"{"record":"longhaul","version":1,"side":"get","what":"http://h/f","program":"longhaul 0.1.0","started":1.5,"interval":0.01,"host":{"name":"h","kernel":"6","cores":2}}"#;
    const END: &str =
        r#"{"at":9,"event":"end","outcome":null,"telemetry":{"samples":3,"dropped":0,"cpu":0.1}}"#;

    fn sample(at: f64, more: &str) -> String {
        format!(
            r#"{{"at":{at},"event":"sample","moved":7,"sockets":{{"open":1,"unread":5,"retransmits":0,"out_of_order":0,"acked":0}}{more},"streams":[{{"stream":0,"unread":5,"tcp":{{"tcpi_bytes_acked":8,"tcpi_new":9}}}}]}}"#
        )
    }

    const PAGES: &str =
        r#","page_cache":{"cached":9,"dirty":8,"writeback":7,"evicted":0,"recently_evicted":0}"#;

    /// A header, an event, three samples and an end: six lines.
    fn whole() -> String {
        let opened = r#"{"at":0.5,"event":"opened","path":"/f","resumed":0,"writer":"direct"}"#.to_owned();
        let samples = [sample(1.0, ""), sample(2.0, PAGES), sample(3.0, "")];
        let lines = [&[HEADER.to_owned(), opened], &samples[..], &[END.to_owned()]].concat();
        lines.join("\n") + "\n"
    }

    fn read(bytes: impl AsRef<[u8]>) -> Result<Record, Failure> {
        read_from(bytes.as_ref(), "r.jsonl")
    }

    fn read_from(from: impl BufRead, path: &str) -> Result<Record, Failure> {
        Record::read(from, Path::new(path)).map(|mut jobs| jobs.swap_remove(0))
    }

    #[test]
    fn reads_a_whole_record_and_ignores_what_a_later_program_adds() {
        let record = read(whole()).unwrap();
        assert_eq!((record.damage, record.samples.len(), record.events.len()), (None, 3, 1));
        assert_eq!(record.end.unwrap().telemetry.samples, 3);
        let (at, last) = &record.samples[2];
        let acked = last.streams[0].tcp.unwrap().tcpi_bytes_acked;
        assert_eq!((*at, acked), (3.0, 8));
        // Only the second sample has a new count.
        let pages: Vec<_> = record.samples.iter().map(|(_, s)| s.page_cache.map(|p| p.dirty.get())).collect();
        assert_eq!(pages, [None, Some(8), None]);
        let more = HEADER.replace("\"side\"", "\"colour\":\"red\",\"side\"");
        let later = r#"{"at":1,"event":"eclipse","of":"the sun"}"#;
        let closed = r#"{"at":1,"event":"closed","stream":0,"why":"done"}"#;
        let record =
            read(format!("{more}\n{later}\n{closed}\n{}\n{END}\n", sample(2.0, r#","heat":1"#))).unwrap();
        assert_eq!((record.damage, record.samples.len(), record.events.len()), (None, 1, 1));
    }

    #[test]
    fn reads_the_result_where_each_version_has_it() {
        let done =
            r#""event":"done","path":"/f","bytes":5,"goodput_bps":40,"limited_by":"disk","digest":null"#;
        let outcome = format!(r#"{{{done}}}"#);
        let first = whole().replace(r#""outcome":null"#, &format!(r#""outcome":{outcome}"#));
        let second = HEADER.replace(r#""version":1"#, r#""version":2"#)
            + &format!("\n{}\n", sample(1.0, r#","job":1"#))
            + &format!("{{\"at\":2,\"job\":1,\"url\":\"http://h/f\",{done}}}\n")
            + &END.replace(r#""outcome":null,"#, "")
            + "\n";
        for text in [first, second] {
            let record = read(text).unwrap();
            assert_eq!(record.damage, None);
            let Some(Event::Done(done)) = record.outcome() else { panic!("{record:?}") };
            assert_eq!((done.bytes.get(), done.finding.limit.name()), (5, "disk"));
        }
        let failed = r#""outcome":{"event":"error","message":"gone","exit_code":69}"#;
        let record = read(whole().replace(r#""outcome":null"#, failed)).unwrap();
        assert_eq!(record.outcome(), Some(&Event::Error { message: "gone".into(), exit_code: 69 }));
        assert_eq!(read(whole()).unwrap().outcome(), None, "a server's");
    }

    #[test]
    fn each_job_of_a_record_is_read_by_itself() {
        let begun = |at: u32, job: u32| {
            format!(r#"{{"at":{at},"job":{job},"url":"http://h/{job}","event":"verifying"}}"#)
        };
        let lines = [
            HEADER.to_owned(),
            begun(0, 4),
            sample(1.0, r#","job":4"#),
            begun(1, 7),
            sample(3.0, r#","job":7"#),
            sample(2.0, r#","job":4"#),
            r#"{"at":4,"job":0,"event":"run","files":2,"limited_by":"path"}"#.to_owned(),
            END.to_owned(),
        ];
        let text = lines.join("\n") + "\n";
        let jobs = Record::read(text.as_bytes(), Path::new("r")).unwrap();
        let found = jobs.iter().map(|job| (job.header.what.as_str(), job.samples.len(), job.events.len()));
        assert_eq!(found.collect::<Vec<_>>(), [("http://h/4", 2, 1), ("http://h/7", 1, 1)]);
        let is_whole = |job: &Record| job.damage.is_none() && job.end.is_some();
        assert!(jobs.iter().all(|job| is_whole(job) && job.run.as_ref().is_some_and(|run| run.files == 2)));
        let many: String = (0..100).map(|job| begun(0, job) + "\n").collect();
        let jobs = Record::read(format!("{HEADER}\n{many}{END}\n").as_bytes(), Path::new("r")).unwrap();
        assert_eq!(jobs.len(), MAX_JOBS);
        assert!(jobs[0].damage.as_ref().unwrap().contains("more than 64 jobs"));
    }

    #[test]
    fn file_other_than_record_and_newer_version_are_refused() {
        let begin = &HEADER[..50];
        let version = |text: &str| HEADER.replace("\"version\":1", &format!("\"version\":{text}")) + "\n";
        let assert_refused = |text: &str, words: &str| {
            let error = read(text).unwrap_err();
            let message = error.to_string();
            assert_eq!(error.kind, FailureKind::Data, "{message}");
            assert!(message.contains(words) && message.contains("r.jsonl"), "{words}: {message}");
        };
        for (text, words) in [
            ("", "is empty: the transfer has written nothing"),
            ("\x7fELF\0\x01\x02", "is no record"),
            (&"\0".repeat(100_000), "is no record"),
            ("{\"record\":\"of a court\",\"version\":1}\n", "is no record"),
            (&(HEADER.replace("\"side\":\"get\",", "") + "\n"), "missing field `side`"),
            (begin, "cut off in its first line"),
            (&(begin.to_owned() + &"x".repeat(100_000)), "first line is too long"),
            (
                "{\"record\":\"longhaul\",\"version\":7,\"all\":\"different\"}\nanything",
                "version 7, and this program reads up to version 2: update longhaul",
            ),
        ] {
            assert_refused(text, words);
        }
        for newer in ["3", "2.5", "2.1", "4294967296", "4294967297", "18446744073709551617", "1e300"] {
            assert_refused(&version(newer), "update longhaul");
        }
        for none in ["0", "-1", "0.5", "\"2\"", "null", "[1]", "true"] {
            assert_refused(&version(none), &format!("there is no version {none}"));
        }
        let long = version(&format!("\"{}\"", "9".repeat(1000)));
        assert!(read(long).unwrap_err().to_string().len() < 200);
    }

    #[test]
    fn a_line_without_an_end_is_not_read_into_memory() {
        // Of three times the limit, at most twice the limit is read.
        let mut endless = io::repeat(b'[').take(LONGEST_HEADER * 3);
        assert!(read_from(BufReader::new(&mut endless), "r").is_err());
        assert!(endless.limit() >= LONGEST_HEADER, "{} bytes are left", endless.limit());
        let begin = format!("{HEADER}\n{}\n", sample(1.0, ""));
        let mut endless = io::repeat(b'[').take(LONGEST_LINE * 3);
        let from = BufReader::new(begin.as_bytes().chain(&mut endless));
        let record = read_from(from, "r").unwrap();
        assert_eq!(record.samples.len(), 1);
        assert!(record.damage.unwrap().starts_with("line 3 is longer than any line of a record"));
        assert!(endless.limit() >= LONGEST_LINE, "{} bytes are left", endless.limit());
    }

    #[test]
    fn reads_up_to_the_damage() {
        let whole = whole();
        let lines: Vec<_> = whole.split_inclusive('\n').collect();
        let year = 365.0 * 86400.0;
        let at = |time: f64| sample(time, "") + "\n";
        let unknown = format!("{{\"at\":3,\"event\":\"new\",\"all\":[{}0]}}\n", "0,".repeat(600_000));
        let streams = r#"{"stream":0,"unread":5},"#.repeat(50_000);
        let wide = at(3.0).replace(r#""streams":["#, &format!(r#""streams":[{streams}"#));
        let deep = format!(r#""sockets":{{"new":[{}0],"#, "0,".repeat(600_000));
        let deep = at(3.0).replace(r#""sockets":{"#, &deep);
        // Lines of the whole record, what follows, the damage, and the samples before it.
        for (kept, tail, word, samples) in [
            (4, "{\"at\":3,\"ev", "cut off in line 5", 2),
            (4, &"\0".repeat(5000), "cut off in line 5", 2),
            (1, "", "without an end", 0),
            (5, "", "without an end", 3),
            (4, "rubbish\n", "line 5 is no line", 2),
            (4, "\n", "line 5 is no line", 2),
            (4, "{\"at\":3}\n", "line 5 is no line", 2),
            (4, &at(3.0).replace("tcpi_new", "tcpi_bytes_acked"), "line 5 is no line", 2),
            (4, "{\"at\":-3,\"event\":\"verifying\"}\n", "line 5 is no line", 2),
            (5, &at(1.5), "line 6 is older", 3),
            (5, &at(1e12), "line 6 is more than ten years", 3),
            (5, "{\"at\":1e9,\"event\":\"verifying\"}\n", "more than ten years", 3),
            (5, &at(9.9 * year), "without an end", 4),
            (5, &unknown, "line 6 is longer", 3),
            (5, &wide, "without an end", 4),
            (5, &deep, "line 6 is longer", 3),
            (6, HEADER, "goes on after its end, in line 7", 3),
        ] {
            let end = if word.starts_with("line") { END } else { "" };
            let record = read(lines[..kept].concat() + tail + end).unwrap();
            assert!(record.damage.as_ref().unwrap().contains(word), "{word}: {:?}", record.damage);
            assert_eq!(record.samples.len(), samples, "{word}");
        }
        // Two bytes of invalid UTF-8 in a name.
        let bad = [lines[..4].concat().as_bytes(), b"{\"at\":3,\"event\":\"\xff\xfe\"}\n"].concat();
        assert!(read(bad).unwrap().damage.unwrap().contains("line 5 is no line"));
    }

    #[test]
    fn an_error_in_the_middle_leaves_what_was_read_and_a_directory_is_named() {
        // Reading a directory fails.
        let failing = || File::open("/").unwrap();
        let begin = format!("{HEADER}\n{}\n{{\"at\":", sample(1.0, ""));
        let record = read_from(BufReader::new(begin.as_bytes().chain(failing())), "r").unwrap();
        assert_eq!(record.samples.len(), 1);
        let damage = "cannot be read from line 3 on: Is a directory (os error 21)";
        assert_eq!(record.damage.as_deref(), Some(damage));
        let error = read_from(BufReader::new(failing()), "r").unwrap_err();
        assert_eq!(error.kind, FailureKind::NotFound);
        let error = Record::load(Path::new("/proc")).unwrap_err();
        assert_eq!(error.kind, FailureKind::NotFound);
        let text = error.to_string();
        assert!(text.contains("directory") && text.contains("/proc"), "{text}");
    }

    #[test]
    fn what_is_read_takes_little_more_memory_than_the_text() {
        // The shortest line of each kind has 32 bytes (stream), 30 (event), 100 (sample).
        assert!(size_of::<StreamSample>() <= 48, "{}", size_of::<StreamSample>());
        assert!(size_of::<JobEvent<'_>>() <= 144, "{}", size_of::<JobEvent<'_>>());
        assert!(size_of::<(f64, Sample)>() <= 480, "{}", size_of::<(f64, Sample)>());
    }
}
