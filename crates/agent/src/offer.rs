//! Downloads offered by a browser that already has the answer to its own request. An offer is accepted only if the
//! server sends the agent the same file with support for ranges. Otherwise the browser continues the download, and
//! nothing is stored.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::units::Bytes;
use longhaul_engine::sampling::SampleInterval;
use longhaul_engine::sink::part_names::{files_beside, journals_of, part_of};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::database::DatabaseError;
use crate::error::QueueError;
use crate::queue::Queue;
use crate::request::{EngineJob, RunContext, TransferRequest};
use crate::runner;
use crate::transfer::{Transfer, TransferState};

/// The timeout for the server's answer, unless the client ends the connection before. The browser's download waits
/// meanwhile, and its server closes an idle connection after a minute or more.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// The interval at which the run is polled meanwhile.
const LOOK: Duration = Duration::from_millis(5);
/// The maximum number of files of one name in a directory.
const MAX_NUMBER: u32 = 1_000;

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
pub(crate) struct OpenedFile {
    pub(crate) size: Option<u64>,
    pub(crate) resumable: bool,
}

impl OpenedFile {
    /// Returns the reason for refusing an offer after this answer; `None` to accept it.
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
    /// Starts a transfer at once, independent of the number of running ones, and returns it after the server's answer.
    /// `client` is dropped when the client has ended the connection: its browser then continues.
    ///
    /// # Errors
    /// [`QueueError::Refused`] if the browser should continue; nothing of the transfer is then kept.
    pub(crate) fn offer(
        self: &Arc<Self>,
        mut offer: Offer,
        client: &Weak<()>,
    ) -> Result<Transfer, QueueError> {
        let directory = self.settings().directory;
        if let (Some(name), None) = (&mut offer.request.name, &offer.request.output) {
            *name = free_name(&directory, name);
        }
        let [transfer] = &self.add_offered(offer.request, offer.size.map(Bytes::new))?[..] else {
            return Err(QueueError::Invalid("an offer is of one file".to_owned()));
        };
        let answered =
            self.start_offered(transfer.id).and_then(|()| self.await_answer(transfer.id, offer.size, client));
        let verdict = answered.and_then(|()| Ok(self.database(|database| database.accept(transfer.id))?));
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

    /// Connects on a thread to the server of an expected offer, so that the offer's first request needs no handshake.
    ///
    /// # Errors
    /// [`QueueError::Invalid`] for an invalid URL.
    pub(crate) fn expect_offer(self: &Arc<Self>, expected: ExpectedOffer) -> Result<(), QueueError> {
        let request = TransferRequest { urls: vec![expected.url], ..TransferRequest::default() };
        let context = RunContext {
            engine: &self.engine,
            limit: self.limit.clone(),
            // The job is not run.
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
        // An offer is repeated where the agent was killed: the transfer of one that had been accepted may run already.
        if self.live(id).is_some() {
            return Ok(());
        }
        Ok(runner::start_run(self, row).map(drop)?)
    }

    /// Waits for the server's answer, and compares it with the browser's.
    fn await_answer(&self, id: i64, size: Option<u64>, client: &Weak<()>) -> Result<(), QueueError> {
        let end = Instant::now() + ANSWER_TIMEOUT;
        loop {
            if client.strong_count() == 0 {
                return Err(QueueError::Refused("it no longer waits".to_owned()));
            }
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
                    // A small file may be complete before its answer was polled; then its size alone is compared.
                    let opened = OpenedFile { size: Some(transfer.bytes), resumable: size.is_some() };
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

    /// Removes the offers that a killed agent had not yet accepted: their browsers have continued.
    pub(crate) fn withdraw_offers(&self) -> Result<(), DatabaseError> {
        for row in self.database(|database| database.offered())? {
            let id = row.transfer.id;
            // A run makes its partial file while it awaits the answer, and records it after that.
            if row.part.is_none()
                && let Ok(request) = self.request(id)
                && let (Some(directory), Some(name)) = (request.output, request.name)
            {
                let target = directory.join(name);
                if !journals_of(&target).iter().any(|journal| journal.exists()) {
                    let _ = fs::remove_file(part_of(&target));
                }
            }
            self.withdraw(id);
        }
        Ok(())
    }

    /// Cancels a transfer and removes its row, record and file, partial or complete.
    fn withdraw(&self, id: i64) {
        let part = self.row(id).ok().and_then(|row| row.part);
        // It may have ended already.
        let _ = self.cancel(id);
        self.wait_for_run(id);
        if let Ok(ended) = self.transfer(id)
            && ended.state == TransferState::Done
        {
            // Completed before the refusal. A run does not replace files, so the file is this run's.
            let _ = fs::remove_file(&ended.path);
        }
        for file in part.iter().flat_map(|part| files_beside(&part.target)) {
            // The run itself removes files that cannot be resumed.
            let _ = fs::remove_file(file);
        }
        if let Err(error) = self.remove(id) {
            tracing::warn!("transfer {id} stays in the list although it was refused: {error}");
        }
    }
}

/// Returns the name, with a number before its extension if a file or partial file of that name exists: a browser asks
/// for a name only once.
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
    fn only_the_same_file_with_ranges_is_accepted_under_a_free_name() {
        let opened = |size, resumable| OpenedFile { size, resumable };
        assert_eq!(opened(Some(5), true).refusal(Some(5)), None);
        assert_eq!(opened(Some(5), true).refusal(None), None);
        assert!(opened(Some(6), true).refusal(Some(5)).unwrap().contains("announces 6"));
        assert!(opened(Some(5), false).refusal(Some(5)).unwrap().contains("no ranges"));
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
}
