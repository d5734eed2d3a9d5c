//! What makes an effect: the HTTP tool, and the traits for tools written in Rust.
//!
//! A tool is handed a [`Call`] and a [`Gate`]. It builds its request, opens the gate as the last
//! thing before the first byte, sends, and says what it [learned](crate::domain::attempt::Learned).
//! Opening the gate gives the token [`Sending`], and only that token can say anything but "nothing
//! left", so a tool cannot claim an effect that it was never allowed to make.
//!
//! Absent on purpose: retries (the record schedules them), settling and leases (the consumer's,
//! behind [`SendGuard`]), and a second send of any kind within one call.

mod call;
mod downstream_key;
mod gate;
pub mod http;
mod serving;
mod set;
mod transactional;

use async_trait::async_trait;

pub use call::Call;
pub use downstream_key::DownstreamSecret;
pub use gate::{Attempted, Gate, SendGuard, SendWindow, Sending};
pub use serving::Serving;
pub use set::{ServeError, ServedTool, ToolKind, ToolSet};
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
}
