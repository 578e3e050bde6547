//! `longhaul queue watch`.

use std::collections::HashMap;
use std::process::ExitCode;

use longhaul_agent::client::{Client, ClientError};
use longhaul_agent::queue::TransferPage;
use longhaul_agent::transfer::{Transfer, TransferState};
use longhaul_core::failure::FailureKind;

use super::show;
use crate::exit;
use crate::{say, stdout};

/// The watched transfers.
struct Watched {
    /// Transfers that have not ended, with the last shown state.
    open: HashMap<i64, Option<TransferState>>,
    json: bool,
    /// The exit code of the first transfer that has failed.
    first_failure: Option<u8>,
}

/// Shows transfers until they have ended or need the user; without `ids` all that have not ended.
pub(super) async fn watch(client: &Client, ids: &[i64], json: bool) -> anyhow::Result<ExitCode> {
    let mut watched = Watched { open: HashMap::new(), json, first_failure: None };
    // Subscribed before the list is read, so that no change is missed.
    let mut events = client.events().await?;
    if ids.is_empty() {
        watched.add_open(client).await?;
    } else {
        watched.open.extend(ids.iter().map(|id| (*id, None)));
    }
    watched.read(client).await?;
    while watched.is_waiting() {
        let (name, data) = events.next().await?;
        match &name[..] {
            "transfer" => watched.note_json(&data),
            "removed" => watched.forget_json(&data),
            "resync" => watched.read(client).await?,
            "progress" if json => stdout::line(data),
            _ => {}
        }
    }
    let mut paused: Vec<_> = watched.open.keys().collect();
    paused.sort_unstable();
    for id in &paused {
        say::error(format_args!("transfer {id} is paused: longhaul queue resume {id}"));
    }
    let paused = (!paused.is_empty()).then_some(exit::of(FailureKind::Temporary));
    Ok(watched.first_failure.or(paused).map_or(ExitCode::SUCCESS, ExitCode::from))
}

impl Watched {
    /// Returns whether a transfer is open that goes on without the user.
    fn is_waiting(&self) -> bool {
        self.open.values().any(|state| *state != Some(TransferState::Paused))
    }

    /// Adds all transfers that have not ended; ended ones are last in listings.
    async fn add_open(&mut self, client: &Client) -> Result<(), ClientError> {
        let mut after = String::new();
        loop {
            let page: TransferPage = client.get(&format!("/api/v1/transfers?limit=1000{after}")).await?;
            let open = page.transfers.iter().filter(|transfer| !transfer.state.is_ended());
            self.open.extend(open.map(|transfer| (transfer.id, None)));
            match page.next {
                Some(next) if !page.transfers.iter().any(|transfer| transfer.state.is_ended()) => {
                    after = format!("&after={next}");
                }
                _ => return Ok(()),
            }
        }
    }

    /// Reads the states of the open transfers.
    async fn read(&mut self, client: &Client) -> Result<(), ClientError> {
        let ids: Vec<_> = self.open.keys().copied().collect();
        for id in ids {
            self.note(&client.get::<Transfer>(&format!("/api/v1/transfers/{id}")).await?);
        }
        Ok(())
    }

    fn note_json(&mut self, data: &str) {
        if let Ok(transfer) = serde_json::from_str(data) {
            self.note(&transfer);
        }
    }

    fn forget_json(&mut self, data: &str) {
        let removed = serde_json::from_str::<serde_json::Value>(data).ok();
        if let Some(id) = removed.and_then(|removed| removed["id"].as_i64()) {
            self.open.remove(&id);
        }
    }

    /// Shows a change of a watched transfer.
    fn note(&mut self, transfer: &Transfer) {
        let Some(known) = self.open.get_mut(&transfer.id) else { return };
        if *known == Some(transfer.state) {
            return;
        }
        *known = Some(transfer.state);
        show::list(std::slice::from_ref(transfer), false, self.json);
        let code = match transfer.state {
            TransferState::Done => None,
            TransferState::Cancelled => Some(exit::of(FailureKind::Interrupted)),
            TransferState::Failed | TransferState::WaitingLink => {
                let of_agent = transfer.error.as_ref().map(|error| error.exit_code);
                Some(of_agent.unwrap_or(exit::of(FailureKind::Internal)))
            }
            _ => return,
        };
        self.open.remove(&transfer.id);
        self.first_failure = self.first_failure.or(code);
    }
}
