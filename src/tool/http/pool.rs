//! Kept connections, for tools whose request may be sent again.
//!
//! A kept connection can die unseen, and a request written to it is then ambiguous. Blind tools
//! therefore never take one: a restart of their downstream would turn into unknowns.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::connect::Origin;
use super::connection::Connection;

/// Below the 60 to 75 seconds after which common servers and balancers close an idle connection.
const MAX_IDLE: Duration = Duration::from_secs(30);

/// Kept per origin; more than a worker's usual concurrency for one tool (16).
const MAX_KEPT: usize = 32;

/// Idle connections by origin, the most recently used last: it is the one most likely alive.
///
/// Nobody watches an idle connection; [`Connection::is_usable`] looks at it when it is taken. One
/// that nobody takes stays open until the next [`Pool::put`] finds it too old.
#[derive(Default)]
pub(super) struct Pool(Mutex<HashMap<Origin, Vec<Kept>>>);

struct Kept {
    connection: Connection,
    since: Instant,
}

impl Pool {
    /// Takes a connection that looks alive.
    pub(super) fn take(&self, origin: &Origin) -> Option<Connection> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let stack = kept.get_mut(origin)?;
        while let Some(Kept { mut connection, since }) = stack.pop() {
            if since.elapsed() < MAX_IDLE && connection.is_usable() {
                return Some(connection);
            }
        }
        None
    }

    /// Keeps a connection if it can carry another request.
    pub(super) fn put(&self, origin: Origin, mut connection: Connection) {
        if !connection.is_usable() {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, stack| {
            stack.retain(|idle| idle.since.elapsed() < MAX_IDLE);
            !stack.is_empty()
        });
        let stack = kept.entry(origin).or_default();
        if stack.len() < MAX_KEPT {
            stack.push(Kept { connection, since: Instant::now() });
        }
    }
}
