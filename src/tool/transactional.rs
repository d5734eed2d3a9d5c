//! Tools whose effect is a write to this very database: effect and settlement commit together.

use async_trait::async_trait;
use thiserror::Error;

use super::Call;
use crate::domain::attempt::Effect;

/// The settling transaction's connection.
///
/// The one place outside the store that names sqlx: the author of a transactional tool writes its
/// own tables with it. No statement of oncebox's own is written here.
pub type SettlingConnection = sqlx::PgConnection;

/// Why a transactional effect was not made. Either way its writes are rolled back, so nothing is
/// left of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TransactionalRefusal {
    /// Definitely no: these arguments will never be carried out.
    #[error("the tool refused")]
    Refused,
    /// Not this time: a lock, a lost connection, a serialization failure.
    #[error("the tool asks to be tried again")]
    Retry,
}

/// A tool written in Rust whose effect runs inside the settling transaction.
///
/// It is never marked as sent: when the transaction rolls back, so does the effect.
#[async_trait]
pub trait TransactionalTool: Send + Sync {
    /// Makes the effect on `connection`.
    ///
    /// The record is locked under this claim's fencing token, a savepoint is set and a statement
    /// time-out runs. Do not commit, roll back or change the session; do nothing outside this
    /// database, since the commit may still fail.
    ///
    /// # Errors
    /// When there shall be no effect: everything since the savepoint is rolled back.
    async fn apply(
        &self,
        call: &Call,
        connection: &mut SettlingConnection,
    ) -> Result<Effect, TransactionalRefusal>;
}
