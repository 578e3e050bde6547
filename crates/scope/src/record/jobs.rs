//! Sorts a record's lines by job.

use std::borrow::Cow;
use std::time::Duration;

use longhaul_core::event::{Event, JobEvent, JobId};

use super::lines::{Damage, Line, parse};
use super::reader::Record;
use super::schema::{End, Header, Sample};

/// More jobs of one record are not read: no figure shows so many.
pub(super) const MOST_JOBS: usize = 64;

/// The jobs of a record while it is read.
#[derive(Default)]
pub(super) struct Jobs {
    jobs: Vec<(JobId, Job)>,
    left_out: bool,
    /// The last line, once it was read.
    pub(super) end: Option<End>,
}

/// What was read of a job.
#[derive(Default)]
struct Job {
    url: Option<String>,
    samples: Vec<(f64, Sample)>,
    events: Vec<JobEvent<'static>>,
}

impl Jobs {
    /// Adds a line; says what is wrong with it.
    pub(super) fn add(&mut self, text: &[u8]) -> Result<(), Damage> {
        match parse(text)? {
            Line::Sample { at, job, sample } => {
                let Some(job) = self.job(job) else { return Ok(()) };
                if job.samples.last().is_some_and(|(before, _)| at < *before) {
                    return Err(Damage::Disorder);
                }
                job.samples.push((at, *sample));
            }
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

    /// Returns a job, a new one where it is its first line; `None` where there are too many.
    fn job(&mut self, id: JobId) -> Option<&mut Job> {
        let place = match self.jobs.iter().position(|(known, _)| *known == id) {
            Some(place) => place,
            None if self.jobs.len() == MOST_JOBS => {
                self.left_out = true;
                return None;
            }
            None => {
                self.jobs.push((id, Job::default()));
                self.jobs.len() - 1
            }
        };
        self.jobs.get_mut(place).map(|(_, job)| job)
    }

    /// Returns a record for each job, and one where there is none.
    pub(super) fn records(mut self, header: &Header, damage: Option<String>) -> Vec<Record> {
        let more = self.left_out.then(|| format!("more than {MOST_JOBS} jobs; the others were left out"));
        let damage = damage.or(more);
        let several = self.jobs.len() > 1;
        if self.jobs.is_empty() {
            self.jobs.push(Default::default());
        }
        let end = self.end;
        let record = |(_, Job { url, samples, events }): (JobId, Job)| {
            let mut header = header.clone();
            header.what = url.filter(|_| several).unwrap_or(header.what);
            Record { header, samples, events, end: end.clone(), damage: damage.clone() }
        };
        self.jobs.into_iter().map(record).collect()
    }
}
