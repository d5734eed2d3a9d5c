//! Registered contracts, each read once: a version's text never changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::{Submission, SubmitError};
use crate::contract_file::{CheckedContract, Examined};
use crate::domain::json::JsonLimits;
use crate::store::{self, Connection};

/// The contracts that this process has read so far, by (tool, version).
#[derive(Debug, Default)]
pub(super) struct Contracts {
    known: Mutex<HashMap<(String, String), Arc<CheckedContract>>>,
}

impl Contracts {
    /// The registered contract.
    ///
    /// # Errors
    /// It is not registered, or this release cannot read it.
    pub(super) async fn get(
        &self,
        connection: &mut Connection,
        tool: &str,
        version: &str,
    ) -> Result<Arc<CheckedContract>, SubmitError> {
        let name = (tool.to_owned(), version.to_owned());
        if let Some(known) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&name) {
            return Ok(Arc::clone(known));
        }
        let registered =
            store::find(connection, tool, version).await?.ok_or(SubmitError::UnknownContract)?;
        // Leases and windows are the workers' to check, under the margin they run with.
        let read = CheckedContract::read(&registered.text, Duration::ZERO)
            .map_err(|_| SubmitError::UnreadableContract)?;
        let contract = Arc::new(read);
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name, Arc::clone(&contract));
        Ok(contract)
    }
}

/// A contract, and what its examination of a submission gave.
pub(super) struct Fitting {
    pub(super) contract: Arc<CheckedContract>,
    pub(super) examined: Examined,
}

impl Fitting {
    /// Examines `submission`.
    ///
    /// # Errors
    /// Its arguments do not fit the contract.
    pub(super) fn of(
        contract: Arc<CheckedContract>,
        submission: &Submission,
        limits: &JsonLimits,
    ) -> Result<Self, SubmitError> {
        let examined = contract
            .examine(&submission.tenant, &submission.arguments, limits)
            .map_err(SubmitError::Arguments)?;
        Ok(Self { contract, examined })
    }
}
