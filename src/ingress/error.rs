//! Why a submission gets no answer, and what may be concluded.

use crate::contract_file::ArgumentProblem;
use crate::domain::key::KeyError;
use crate::domain::reason::Reason;
use crate::store::StoreError;

/// Why there is no answer. Nothing was written for this submission.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The submission itself is malformed.
    #[error("{0}")]
    Invalid(String),
    /// A part of the operation key is refused.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The arguments do not fit the contract.
    #[error("arguments do not fit the contract: {}", first(.0))]
    Arguments(Vec<ArgumentProblem>),
    /// The tool or version is not in the registry, or no version is named and none is current.
    #[error(
        "tool or version is not registered, or the tool has no current version; activate its contract"
    )]
    UnknownContract,
    /// The registry holds a contract that this release cannot read.
    #[error("the registered contract cannot be read by this release; look at contract check")]
    UnreadableContract,
    /// Another transaction holds the key and may still roll back: roll back and repeat.
    #[error("another transaction is submitting this key; roll back and repeat")]
    Busy,
    /// The database failed: roll back. [`StoreError`] says what may be concluded.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for SubmitError {
    fn from(error: StoreError) -> Self {
        if error.sqlstate().as_deref() == Some("55P03") { Self::Busy } else { Self::Store(error) }
    }
}

impl SubmitError {
    /// The stable code of a refusal, if it is one: the envelope's `reason`.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Invalid(_) | Self::Key(_) | Self::Arguments(_) => Some(Reason::InvalidArguments),
            Self::UnknownContract | Self::UnreadableContract => {
                Some(Reason::ContractVersionUnknown)
            }
            Self::Busy | Self::Store(_) => None,
        }
    }

    /// Whether the caller's transaction can only be rolled back.
    pub(super) fn spoils_transaction(&self) -> bool {
        self.reason().is_none()
    }
}

fn first(problems: &[ArgumentProblem]) -> String {
    problems.first().map_or_else(String::new, |problem| {
        format!("{}: {}", problem.pointer.brief(), problem.message)
    })
}
