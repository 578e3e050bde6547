//! Groups the lines of a record by job.

use std::borrow::Cow;
use std::time::Duration;

use longhaul_core::event::{Event, JobEvent, JobId, RunDone};

use super::lines::{Damage, Line, parse};
use super::reader::Record;
use super::schema::{End, Header, Sample};

/// Maximum of jobs read from one record: figures cannot show more.
pub(super) const MAX_JOBS: usize = 64;

/// The jobs of a record that is being read.
#[derive(Default)]
pub(super) struct Jobs {
    jobs: Vec<(JobId, JobLines)>,
    left_out: bool,
    /// What limited the jobs together.
    run: Option<Box<RunDone>>,
    /// The record's last line, once read.
    pub(super) end: Option<End>,
}

/// The lines of one job.
#[derive(Default)]
struct JobLines {
    url: Option<String>,
    samples: Vec<(f64, Sample)>,
    events: Vec<JobEvent<'static>>,
}

impl Jobs {
    /// Adds a line; returns its damage.
    pub(super) fn add(&mut self, text: &[u8]) -> Result<(), Damage> {
        match parse(text)? {
            Line::Sample { at, job, sample } => {
                let Some(job) = self.job(job) else { return Ok(()) };
                if job.samples.last().is_some_and(|(before, _)| at < *before) {
                    return Err(Damage::Disorder);
                }
                job.samples.push((at, *sample));
            }
            Line::Event(JobEvent { event: Cow::Owned(Event::Run(run)), .. }) => self.run = Some(run),
            Line::Event(mut line) => {
                let Some(job) = self.job(line.job) else { return Ok(()) };
                if let Some(url) = line.url.take() {
                    job.url.get_or_insert(url.into_owned());
                }
                if *line.event != Event::Unknown {
                    job.events.push(line);
                }
            }
            Line::End(mut end) => {
                if let (Some(outcome), Ok(at)) = (end.outcome.take(), Duration::try_from_secs_f64(end.at)) {
                    let event = Cow::Owned(outcome);
                    let job = JobId::default();
                    if let Some(of) = self.job(job) {
                        of.events.push(JobEvent { at, job, url: None, event });
                    }
                }
                self.end = Some(end);
            }
        }
        Ok(())
    }

    /// Returns a job, created on its first line; `None` if there are too many.
    fn job(&mut self, id: JobId) -> Option<&mut JobLines> {
        let place = match self.jobs.iter().position(|(known, _)| *known == id) {
            Some(place) => place,
            None if self.jobs.len() == MAX_JOBS => {
                self.left_out = true;
                return None;
            }
            None => {
                self.jobs.push((id, JobLines::default()));
                self.jobs.len() - 1
            }
        };
        self.jobs.get_mut(place).map(|(_, job)| job)
    }

    /// Returns a record for each job; one empty record if there is no job.
    pub(super) fn records(mut self, header: &Header, damage: Option<String>) -> Vec<Record> {
        let more = self.left_out.then(|| format!("more than {MAX_JOBS} jobs; the others were left out"));
        let damage = damage.or(more);
        let several = self.jobs.len() > 1;
        if self.jobs.is_empty() {
            self.jobs.push(Default::default());
        }
        let (run, end) = (self.run, self.end);
        let record = |(_, JobLines { url, samples, events }): (JobId, JobLines)| {
            let mut header = header.clone();
            header.what = url.filter(|_| several).unwrap_or(header.what);
            let (run, end, damage) = (run.clone(), end.clone(), damage.clone());
            Record { header, samples, events, run, end, damage }
        };
        self.jobs.into_iter().map(record).collect()
    }
}
