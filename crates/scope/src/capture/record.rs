//! A captured connection as a record, so that it is drawn like one.

use std::borrow::Cow;

use longhaul_core::advice::Reading;
use longhaul_core::event::{Done, Event, JobEvent, JobId};
use longhaul_core::telemetry::{Counters, PathTimes, Sockets, WindowSums};
use longhaul_core::units::seconds;

use super::flow::{Flow, INTERVAL};
use crate::diagnosis::Diagnosis;
use crate::record::Record;
use crate::record::schema::{Header, Host, MAGIC, Sample, Side, VERSION};

impl Flow {
    /// Returns the record that the host where the packets were captured would have written, as far
    /// as packets show it; without samples if the capture was read with
    /// [`Keep::Diagnosis`](super::Keep).
    pub fn record(&self) -> Record {
        let (side, program) = match self.coverage.at_sender {
            Some(true) => (Side::Put, "captured at the sender"),
            Some(false) => (Side::Get, "captured at the receiver"),
            None => (Side::Get, "captured"),
        };
        let header = Header {
            record: MAGIC.to_owned(),
            version: VERSION,
            side,
            what: format!("{} -> {}", self.from, self.to),
            pace: None,
            program: program.to_owned(),
            started: seconds::of(self.began),
            interval: seconds::of(INTERVAL),
            // The host is not known.
            host: Host { name: String::new(), kernel: String::new(), cores: 0 },
        };
        let samples = self.readings.iter().map(|(at, reading)| (seconds::of(*at), sample(reading, side)));
        let events = self.diagnosis.as_ref().map_or_else(|_| Vec::new(), |found| self.events(found));
        Record { header, samples: samples.collect(), events, run: None, end: None, damage: None }
    }

    /// Returns the limits over time, and the result.
    fn events(&self, found: &Diagnosis) -> Vec<JobEvent<'static>> {
        let event = |at, event| JobEvent { at, job: JobId::default(), url: None, event: Cow::Owned(event) };
        let limited = |limit| Event::Limited { by: limit, ago: Default::default() };
        let done = Done {
            bytes: found.moved,
            time: found.time,
            goodput: found.rate(),
            streams: 1,
            finding: found.finding.clone(),
            ..Done::default()
        };
        let spans = found.timeline.iter().map(|span| event(span.from, limited(span.limit)));
        spans.chain([event(self.time, Event::Done(Box::new(done)))]).collect()
    }
}

fn sample(reading: &Reading, side: Side) -> Sample {
    let counters = match side {
        Side::Put => Counters { retransmits: reading.packets.lost, ..Counters::default() },
        _ => Counters { out_of_order: reading.packets.lost, ..Counters::default() },
    };
    let sockets = Sockets {
        open: 1,
        unread: reading.unread,
        windows: WindowSums { rwin: reading.window, ..WindowSums::default() },
        times: PathTimes {
            data_rtt: reading.path.data_rtt,
            min_rtt: reading.path.min_rtt,
            ..PathTimes::default()
        },
        counters,
        ..Sockets::default()
    };
    Sample { moved: reading.moved, sockets, ..Sample::default() }
}
