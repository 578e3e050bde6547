//! Downloads offered by a browser that already has the answer to its own request. An offer is
//! accepted only if the server sends the agent the same file with support for ranges. Otherwise the
//! browser continues the download, and nothing is stored.

use std::fs;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::units::Bytes;
use longhaul_engine::sampling::SampleInterval;
use longhaul_engine::sink::directory::Directory;
use longhaul_engine::sink::output::PreparedOutput;
use longhaul_engine::sink::part_file::PartFile;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::database::{DatabaseError, TransferRow};
use crate::error::QueueError;
use crate::queue::Queue;
use crate::request::{RunContext, TransferRequest};
use crate::runner;
use crate::transfer::{Transfer, TransferState};

/// The timeout for the server's answer, unless the client ends the connection before. The browser's
/// download waits meanwhile, and its server closes an idle connection after a minute or more.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// The interval at which the run is polled meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A download started by a browser.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub(crate) struct Offer {
    /// The size in the answer to the browser's own request, in bytes.
    size: Option<u64>,
    /// The request.
    #[serde(flatten)]
    request: TransferRequest,
}

/// A download that a browser may offer as soon as it has an answer.
#[derive(Debug, Clone, Deserialize, ToSchema)]
pub(crate) struct ExpectedOffer {
    /// A URL on the server.
    url: String,
}

/// The properties in the first answer of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AnswerProperties {
    pub(crate) size: Option<u64>,
    pub(crate) resumable: bool,
}

impl AnswerProperties {
    /// Refuses an offer of a file that the server does not send alike, or not in ranges.
    fn check(self, offered: Option<u64>) -> Result<(), QueueError> {
        match (self.size, offered) {
            _ if !self.resumable => refuse("the server gives no ranges of the file"),
            (Some(size), Some(offered)) if size != offered => {
                refuse(format!("the server has sent the browser {offered} bytes, and announces {size} now"))
            }
            _ => Ok(()),
        }
    }
}

impl Queue {
    /// Starts a transfer at once, independent of the number of running ones, and returns it after
    /// the server's answer. `client` is dropped when the client has ended the connection: its
    /// browser then continues.
    ///
    /// # Errors
    /// [`QueueError::Refused`] if the browser should continue; nothing of the transfer is then
    /// kept.
    pub(crate) fn offer(self: &Arc<Self>, offer: Offer, client: &Weak<()>) -> Result<Transfer, QueueError> {
        let [transfer] = &self.add_offered(offer.request, offer.size.map(Bytes::new))?[..] else {
            return Err(QueueError::Invalid("an offer is of one file".to_owned()));
        };
        let answered =
            self.start_offered(transfer.id).and_then(|()| self.await_answer(transfer.id, offer.size, client));
        // The client may give up while the acceptance is written.
        let accepted = answered.and_then(|()| Ok(self.database(|database| database.accept(transfer.id))?));
        let verdict = accepted.and_then(|()| require_waiting(client));
        match verdict {
            Ok(()) => {
                self.settle_offer(transfer.id);
                self.runs.wake();
                self.tell_stats();
                self.changed(transfer.id)
            }
            Err(error) => {
                self.withdraw(transfer.id);
                self.settle_offer(transfer.id);
                Err(error)
            }
        }
    }

    /// Connects on a thread to the server of an expected offer, so that the offer's first request
    /// needs no handshake.
    ///
    /// # Errors
    /// [`QueueError::Invalid`] for an invalid URL.
    pub(crate) fn expect_offer(self: &Arc<Self>, expected: ExpectedOffer) -> Result<(), QueueError> {
        let request = TransferRequest::of_urls(vec![expected.url]);
        let context = RunContext {
            engine: &self.engine,
            limit: self.runs.limit.clone(),
            // The job is not run.
            sample: SampleInterval::new(POLL_INTERVAL),
            target: None,
            offered_size: None,
        };
        let job = request.get(&context)?;
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
        // An offer is repeated where the agent was killed: the transfer of one that had been
        // accepted may run already.
        if self.runs.get(id).is_some() {
            return Ok(());
        }
        Ok(runner::start_run(self, row).map(drop)?)
    }

    /// Waits for the server's answer, and compares it with the browser's.
    fn await_answer(&self, id: i64, size: Option<u64>, client: &Weak<()>) -> Result<(), QueueError> {
        let end = Instant::now() + ANSWER_TIMEOUT;
        loop {
            require_waiting(client)?;
            if self.runs.is_stopping() {
                return refuse("the agent ends");
            }
            let answer = self.runs.get(id).and_then(|live| live.first_answer());
            if let Some(answer) = answer {
                return answer.check(size);
            }
            let transfer = self.transfer(id)?;
            match transfer.state {
                TransferState::Done => {
                    // A small file may be complete before its answer was polled; then its size
                    // alone is compared.
                    let answer =
                        AnswerProperties { size: Some(transfer.progress.bytes), resumable: size.is_some() };
                    return answer.check(size);
                }
                TransferState::Queued | TransferState::Running if Instant::now() < end => {}
                TransferState::Queued | TransferState::Running => {
                    let waited = ANSWER_TIMEOUT.as_secs();
                    return refuse(format!("the server has not answered within {waited} s"));
                }
                _ => {
                    return refuse(transfer.error.map_or("it was stopped".to_owned(), |error| error.message));
                }
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Removes the offers that a killed agent had not yet accepted: their browsers have continued.
    pub(crate) fn withdraw_offers(&self) -> Result<(), DatabaseError> {
        let offered = self.database(|database| database.offered())?;
        // A run makes its partial file while it awaits the answer, and records it after that. Each
        // file is locked until the others are found: the same search for free names then finds the
        // same files.
        let unrecorded = offered.iter().filter(|row| row.part.is_none());
        let parts: Vec<_> = unrecorded.filter_map(|row| self.unrecorded_part(row.transfer.id)).collect();
        parts.iter().for_each(PartFile::abandon);
        drop(parts);
        offered.iter().for_each(|row| self.withdraw(row.transfer.id));
        Ok(())
    }

    /// Finds the partial file of a run that has not had an answer.
    fn unrecorded_part(&self, id: i64) -> Option<PartFile> {
        let request = self.request(id).ok()?;
        let directory = Directory::open(&request.target.output?).ok()?;
        PreparedOutput::new(directory, Some(request.target.name?.into()))
            .open_numbered(None, false, |_| false)
            .ok()
    }

    /// Cancels a transfer and removes its row, record and file, partial or complete.
    fn withdraw(&self, id: i64) {
        // It may have ended already.
        let _ = self.cancel(id);
        self.runs.wait_for_end(id);
        if let Ok(TransferRow { transfer, part: Some(part), .. }) = self.row(id)
            && transfer.state == TransferState::Done
            && part.is_at(transfer.ends.path.as_ref())
        {
            // Completed before the refusal.
            let _ = fs::remove_file(&transfer.ends.path);
        }
        if let Err(error) = self.remove(id, true).or_else(|_| self.remove(id, false)) {
            tracing::warn!("transfer {id} stays in the list although it was refused: {error}");
        }
    }
}

/// Refuses an offer whose client has ended the connection.
fn require_waiting(client: &Weak<()>) -> Result<(), QueueError> {
    if client.strong_count() == 0 { refuse("it no longer waits") } else { Ok(()) }
}

fn refuse(why: impl Into<String>) -> Result<(), QueueError> {
    Err(QueueError::Refused(why.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_without_ranges_is_refused() {
        let checked = AnswerProperties { size: Some(5), resumable: false }.check(Some(5));
        assert!(checked.unwrap_err().to_string().contains("no ranges"));
    }
}
