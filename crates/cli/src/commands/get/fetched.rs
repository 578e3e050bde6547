//! The outcome of a file: fetched, or already present.

use longhaul_core::advice::Finding;
use longhaul_core::event::Done;
use longhaul_engine::job::TransferError;

use crate::summary::{Complete, Unchanged};

/// The outcome of a file.
pub(super) enum Fetched {
    Now(Box<Done>),
    Unchanged(Unchanged),
    AlreadyThere(Unchanged),
}

impl Complete for Fetched {
    fn done(&self) -> Done {
        match self {
            Self::Now(outcome) => outcome.done(),
            Self::Unchanged(unchanged) | Self::AlreadyThere(unchanged) => unchanged.done(),
        }
    }

    fn finding(&self) -> Option<&Finding> {
        match self {
            Self::Now(outcome) => Some(&outcome.finding),
            Self::Unchanged(_) | Self::AlreadyThere(_) => None,
        }
    }

    fn is_shown(&self) -> bool {
        matches!(self, Self::Now(_))
    }

    fn note(&self) -> Option<String> {
        match self {
            Self::Now(_) => None,
            Self::Unchanged(unchanged) => {
                Some(format!("{}: not newer on the server", unchanged.path.display()))
            }
            Self::AlreadyThere(unchanged) => Some(format!("{}: already there", unchanged.path.display())),
        }
    }
}

/// Returns the outcome of a file; `there` is the present file of --if-newer.
pub(super) fn outcome(
    result: Result<Done, TransferError>,
    there: Option<Unchanged>,
) -> Result<Fetched, TransferError> {
    match (result, there) {
        (Err(TransferError::NotModified), Some(there)) => Ok(Fetched::Unchanged(there)),
        (Err(TransferError::AlreadyThere { path, size }), _) => {
            Ok(Fetched::AlreadyThere(Unchanged { path, size }))
        }
        (result, _) => result.map(|outcome| Fetched::Now(Box::new(outcome))),
    }
}
