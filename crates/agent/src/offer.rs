//! Offers of a browser, which has the answer to its own request already: a download is taken over only where the server answers the
//! agent with the same file, in ranges. All else stays with the browser, and nothing of it is kept here.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::units::Bytes;
use longhaul_engine::sampling::SampleInterval;
use longhaul_engine::sink::part_names::{files_beside, part_of};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::error::QueueError;
use crate::queue::Queue;
use crate::request::{EngineJob, RunContext, TransferRequest};
use crate::runner;
use crate::transfer::{Transfer, TransferState};

/// How long a server may take to answer. The browser's download waits meanwhile, and its server closes an idle connection after a
/// minute or more.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// How often the run is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(5);
/// The most files of one name in a directory.
const MAX_NUMBER: u32 = 1_000;
/// How long a run that is given up may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// A download that a browser has begun.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub(crate) struct Offer {
    /// The size in the answer to the browser's own request, in bytes.
    size: Option<u64>,
    /// What to fetch.
    #[serde(flatten)]
    request: TransferRequest,
}

/// A download that may be offered as soon as the browser has its answer.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub(crate) struct ExpectedOffer {
    /// A URL of its server.
    url: String,
}

/// What the first answer of a run has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) size: Option<u64>,
    pub(crate) resumable: bool,
}

impl Opened {
    /// Returns why a download is not taken over whose server has answered so; `None` where it is.
    fn refusal(self, offered: Option<u64>) -> Option<String> {
        match (self.size, offered) {
            _ if !self.resumable => Some("the server gives no ranges of the file".to_owned()),
            (Some(size), Some(offered)) if size != offered => {
                Some(format!("the server has sent the browser {offered} bytes, and announces {size} now"))
            }
            _ => None,
        }
    }
}

impl Queue {
    /// Starts a transfer at once, however many run, and returns it when its server has answered.
    ///
    /// # Errors
    /// [`QueueError::Refused`] where the browser had better go on; nothing of the transfer is kept then.
    pub(crate) fn offer(self: &Arc<Self>, mut offer: Offer) -> Result<Transfer, QueueError> {
        let directory = self.settings().directory;
        if let (Some(name), None) = (&mut offer.request.name, &offer.request.output) {
            *name = free_name(&directory, name);
        }
        let [transfer] = &self.add_offered(offer.request, offer.size.map(Bytes::new))?[..] else {
            return Err(QueueError::Invalid("an offer is of one file".to_owned()));
        };
        let verdict =
            self.start_offered(transfer.id).and_then(|()| self.await_answer(transfer.id, offer.size));
        match verdict {
            Ok(()) => {
                self.settle_offer(transfer.id);
                self.wake();
                self.changed(transfer.id)
            }
            Err(error) => {
                self.withdraw(transfer.id);
                self.settle_offer(transfer.id);
                Err(error)
            }
        }
    }

    /// Connects to the server of an expected offer, on a thread; the offer's first request finds the handshakes done.
    ///
    /// # Errors
    /// [`QueueError::Invalid`] for what is no URL.
    pub(crate) fn expect_offer(self: &Arc<Self>, expected: ExpectedOffer) -> Result<(), QueueError> {
        let request = TransferRequest { urls: vec![expected.url], ..TransferRequest::default() };
        let context = RunContext {
            engine: &self.engine,
            limit: self.limit.clone(),
            // The job does not run.
            sample: SampleInterval::new(LOOK),
            known_name: None,
            offered_size: None,
        };
        let EngineJob::Get(job) = request.engine_job(context)? else { return Ok(()) };
        let queue = Arc::clone(self);
        let held = thread::Builder::new().name("early".into()).spawn(move || {
            if let Err(error) = queue.engine.hold_early(&job) {
                tracing::debug!("no connection ahead of an offer: {error}");
            }
        });
        if let Err(error) = held {
            tracing::debug!("no thread for a connection ahead of an offer: {error}");
        }
        Ok(())
    }

    fn start_offered(self: &Arc<Self>, id: i64) -> Result<(), QueueError> {
        let row = self.row(id)?;
        // Where the runner was quicker, it runs as well.
        Ok(runner::start_run(self, row).map(drop)?)
    }

    /// Waits until the server has answered, and compares that with the browser's answer.
    fn await_answer(&self, id: i64, size: Option<u64>) -> Result<(), QueueError> {
        let end = Instant::now() + ANSWER_TIMEOUT;
        loop {
            if self.is_stopping() {
                return Err(QueueError::Refused("the agent ends".to_owned()));
            }
            let opened = self.live(id).and_then(|live| live.opened());
            if let Some(opened) = opened {
                return opened.refusal(size).map_or(Ok(()), |why| Err(QueueError::Refused(why)));
            }
            let transfer = self.transfer(id)?;
            match transfer.state {
                TransferState::Done => {
                    // A small file may be complete before its answer was looked at; its size alone shows that it is the offered one.
                    let opened = Opened { size: Some(transfer.bytes), resumable: size.is_some() };
                    return opened.refusal(size).map_or(Ok(()), |why| Err(QueueError::Refused(why)));
                }
                TransferState::Queued | TransferState::Running if Instant::now() < end => {}
                TransferState::Queued | TransferState::Running => {
                    let waited = ANSWER_TIMEOUT.as_secs();
                    return Err(QueueError::Refused(format!(
                        "the server has not answered within {waited} s"
                    )));
                }
                _ => {
                    let why =
                        transfer.error.map_or_else(|| "it was stopped".to_owned(), |error| error.message);
                    return Err(QueueError::Refused(why));
                }
            }
            thread::sleep(LOOK);
        }
    }

    /// Ends a transfer and removes all of it: row, record and file, partial or complete.
    fn withdraw(&self, id: i64) {
        let part = self.row(id).ok().and_then(|row| row.part);
        // It may have ended by itself.
        let _ = self.cancel(id);
        let end = Instant::now() + END_TIMEOUT;
        while self.live(id).is_some() && Instant::now() < end {
            thread::sleep(LOOK);
        }
        if let Ok(ended) = self.transfer(id)
            && ended.state == TransferState::Done
        {
            // Complete before it was refused: a run replaces no file, so this one is its own.
            let _ = fs::remove_file(&ended.path);
        }
        for file in part.iter().flat_map(|part| files_beside(&part.target)) {
            // The run removes what it cannot resume.
            let _ = fs::remove_file(file);
        }
        if let Err(error) = self.remove(id) {
            tracing::warn!("transfer {id} stays in the list although it was refused: {error}");
        }
    }
}

/// Returns the name, with a number before its extension where a file or a partial file of that name is there: a browser asks no more
/// than once for a name.
fn free_name(directory: &Path, name: &str) -> String {
    let is_free = |name: &str| {
        let target = directory.join(name);
        !target.exists() && !part_of(&target).exists()
    };
    let (stem, extension) = match name.rfind('.') {
        Some(dot) if dot > 0 => name.split_at(dot),
        _ => (name, ""),
    };
    let numbered = (1..MAX_NUMBER).map(|number| format!("{stem} ({number}){extension}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    names.find(|name| is_free(name)).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_that_is_taken_gets_a_number() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["set.tar", "set (1).tar", ".hidden", "part.bin.longhaul-part"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let free = |name| free_name(directory.path(), name);
        assert_eq!(free("set.tar"), "set (2).tar");
        assert_eq!(free(".hidden"), ".hidden (1)");
        assert_eq!(free("part.bin"), "part (1).bin");
        assert_eq!(free("other"), "other");
    }

    #[test]
    fn only_the_same_file_in_ranges_is_taken_over() {
        let opened = |size, resumable| Opened { size, resumable };
        assert_eq!(opened(Some(5), true).refusal(Some(5)), None);
        assert_eq!(opened(Some(5), true).refusal(None), None);
        assert!(opened(Some(6), true).refusal(Some(5)).unwrap().contains("announces 6"));
        assert!(opened(Some(5), false).refusal(Some(5)).unwrap().contains("no ranges"));
    }
}
