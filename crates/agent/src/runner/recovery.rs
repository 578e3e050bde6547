//! Recovers the transfers that a killed agent has left running.

use super::run;
use crate::database::DatabaseError;
use crate::queue::Queue;
use crate::transfer::TransferState;

/// Settles transfers left running by a killed agent: a file with its final name is done, others are
/// queued again. In a farm their next run sees that, since a shared file system may hang.
pub(super) fn recover(queue: &Queue) -> Result<(), DatabaseError> {
    let now = queue.now();
    queue.database(|database| {
        for row in database.running()? {
            let id = row.transfer.id;
            let complete = if queue.farm.is_none() { run::completed_before(&row) } else { None };
            if let Some(end) = complete {
                tracing::info!("transfer {id} had been completed: {}", row.transfer.ends.path);
                database.end(id, TransferState::Done, &end, now)?;
            } else {
                database.release(id, row.epoch)?;
            }
        }
        Ok(())
    })
}
