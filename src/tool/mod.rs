//! What makes an effect, and what can be asked about one: over HTTP, and by traits for tools written
//! in Rust.
//!
//! A tool is handed a [`Call`] and a [`Gate`]. It builds its request, opens the gate as the last
//! thing before the first byte, sends, and says what it [learned](crate::domain::attempt::Learned).
//! Opening the gate gives the token [`Sending`], and only that token can say anything but "nothing
//! left", so a tool cannot claim an effect that it was never allowed to make.
//!
//! Questions (look-ups, polls, conditions, permission) change nothing and need no gate. What they show
//! is [evidence](crate::domain::evidence), and who could not be asked has said nothing.
//!
//! Absent on purpose: retries (the record schedules them), settling and leases (the consumer's,
//! behind [`SendGuard`]), and a second send of any kind within one call.

mod call;
mod downstream_key;
mod gate;
pub mod http;
mod permission;
mod serve_error;
mod served;
mod set;
mod transactional;

use async_trait::async_trait;

use crate::domain::attempt::Receipt;
use crate::domain::evidence::{Blank, Checked, Evidence};

pub use call::Call;
pub use downstream_key::DownstreamSecret;
pub use gate::{Attempted, Gate, SendGuard, SendWindow, Sending};
pub use permission::{Action, Authorizer, Authorizers, Permission, Question, UnknownAuthorizer};
pub use serve_error::ServeError;
pub use served::{Outside, ServedTool, ToolKind};
pub use set::ToolSet;
pub use transactional::{SettlingConnection, TransactionalRefusal, TransactionalTool};

/// A tool written in Rust whose effect lies outside this database.
///
/// ```
/// use oncebox::domain::attempt::{Ambiguity, NotSent, Receipt, Response};
/// use oncebox::tool::{Attempted, Call, Gate, Tool};
///
/// struct Lamp;
///
/// #[async_trait::async_trait]
/// impl Tool for Lamp {
///     async fn call(&self, call: &Call, gate: Gate) -> Attempted {
///         let Some(room) = call.arguments.member("room").and_then(|room| room.as_str()) else {
///             return Attempted::not_sent(NotSent::Unbuildable);
///         };
///         let sending = match gate.open().await {
///             Ok(sending) => sending,
///             Err(closed) => return closed,
///         };
///         // ... switch the lamp on before `sending.send_before()` ...
///         match Receipt::new(format!("lamp:{room}")) {
///             Some(receipt) => sending.applied(receipt, Response::None),
///             None => sending.ambiguous(Ambiguity::NoReceipt),
///         }
///     }
/// }
/// ```
#[async_trait]
pub trait Tool: Send + Sync {
    /// Tries the effect once.
    ///
    /// Nothing may leave before `gate` is open, and the first byte must leave before
    /// [`Sending::send_before`]. Everything that can fail without an effect (building the request,
    /// connecting) belongs before the gate. The future is dropped when the lease ends, which counts
    /// as ambiguous after the gate; but the lease is renewed while the call runs, so give the call a
    /// time-out of its own, shorter than the lease less its margin.
    async fn call(&self, call: &Call, gate: Gate) -> Attempted;

    /// Looks for the effect, where the contract has a `downstream.lookup` without `http`.
    ///
    /// Say [`Evidence::Found`] only with the effect's own receipt, the same text that
    /// [`Tool::call`] would give, and [`Evidence::Absent`] only when the system of record itself says
    /// that there is none: not on an error, not from a cache, not because a page of a list ended. A
    /// second effect may follow from it. Everything else is [`Evidence::CannotTell`]. Nothing may be
    /// changed by asking. A panic, or an answer that takes longer than 30 seconds, tells nothing.
    async fn lookup(&self, _call: &Call) -> Evidence {
        Evidence::CannotTell(Blank::NoQuestion)
    }

    /// Asks the provider how the job [`Call::job`] stands, where the contract has a `downstream.poll`
    /// without `http`.
    ///
    /// Say [`Evidence::JobFailed`] only when the job has ended for good without an effect, and
    /// [`Evidence::Found`] only with the effect's own receipt. A job that is not there proves nothing.
    /// The rules of [`Tool::lookup`] apply.
    async fn poll(&self, _call: &Call) -> Evidence {
        Evidence::CannotTell(Blank::NoQuestion)
    }

    /// Whether the target is as a first send demands; asked after the contract's own `preconditions`
    /// and never before a re-send. [`Checked::Fails`] ends the operation: say it only when the target
    /// itself says so, and [`Checked::Unreachable`] when it cannot be asked. Nothing may be changed by
    /// asking. A panic, or 30 seconds, count as unreachable.
    async fn precondition(&self, _call: &Call) -> Checked {
        Checked::Holds
    }

    /// Whether the effect `receipt` is there as promised; asked after the contract's own
    /// `postcondition`. Anything but [`Checked::Holds`] leaves the operation to a person, although the
    /// effect is proved. The rules of [`Tool::precondition`] apply.
    async fn postcondition(&self, _call: &Call, _receipt: &Receipt) -> Checked {
        Checked::Holds
    }
}
