//! One attempt: gate, tool, result. A panic in a tool is that operation's failure only.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::lease::Held;
use super::mark::{Marked, ToMark};
use crate::domain::attempt::{Ambiguity, Learned, NotSent};
use crate::domain::claim::Ticket;
use crate::domain::evidence::{Blank, Evidence};
use crate::domain::json::Json;
use crate::serving::Serving;
use crate::tool::{Attempted, Call, Gate, SendGuard, SendWindow, ServedTool, Tool as _, ToolKind};

/// What the gate of one attempt needs.
pub(super) struct Guard {
    pub(super) ticket: Ticket,
    pub(super) held: Held,
    /// What is kept free at the end of the lease.
    pub(super) margin: Duration,
    /// The last moment that the downstream's window allows.
    pub(super) window_ends: Option<Instant>,
    /// Writes the mark; `None`: the claim has written it.
    pub(super) marker: Option<mpsc::Sender<ToMark>>,
    pub(super) passage: Arc<Passage>,
    pub(super) serving: Arc<Serving>,
    pub(super) arguments: Arc<Json>,
}

/// What became of the gate, for whoever settles the attempt.
#[derive(Debug, Default)]
pub(super) struct Passage {
    marked: AtomicBool,
    opened: AtomicBool,
}

impl Passage {
    /// The ticket with what is known of the mark now.
    pub(super) fn ticket(&self, mut ticket: Ticket) -> Ticket {
        ticket.marked |= self.marked.load(Ordering::Acquire);
        ticket
    }
}

#[async_trait]
impl SendGuard for Guard {
    async fn open(&mut self) -> Result<SendWindow, NotSent> {
        if let Some(marker) = &self.marker {
            let (answer, marked) = oneshot::channel();
            let ask = ToMark {
                operation: self.held.operation(),
                ticket: self.ticket,
                serving: Arc::clone(&self.serving),
                arguments: Arc::clone(&self.arguments),
                answer,
            };
            marker.send(ask).await.map_err(|_| NotSent::Draining)?;
            // A mark that nobody waits for any more may still be written: the settle takes it back.
            match marked.await.unwrap_or(Marked::Lost) {
                Marked::Yes => {}
                Marked::Lost => return Err(NotSent::ClaimLost),
                Marked::Forbidden(denial) => return Err(NotSent::Forbidden(denial)),
            }
            self.passage.marked.store(true, Ordering::Release);
        }
        // The last check before the first byte, by our own clock.
        let lease_ends = self.held.ends().checked_sub(self.margin).unwrap_or_else(Instant::now);
        let send_before = self.window_ends.map_or(lease_ends, |window| window.min(lease_ends));
        if Instant::now() >= send_before {
            return Err(NotSent::LeaseTooShort);
        }
        self.passage.opened.store(true, Ordering::Release);
        Ok(SendWindow { send_before })
    }
}

/// Makes one attempt: asks whether it may be sent, sends, and asks the postcondition of an effect.
pub(super) async fn attempt(served: &ServedTool, call: &Call, guard: Guard) -> Learned {
    let learned = send(served, call, guard).await;
    // Outside of what the end of the claim stops: the proof is there already.
    served.confirm(call, learned).await
}

/// Ends when the tool answers. Before the gate is open it also ends with the claim; after that a
/// request on the wire is waited for, since its answer may be the proof, while a tool written in Rust,
/// which sets itself no end, is stopped.
async fn send(served: &ServedTool, call: &Call, guard: Guard) -> Learned {
    let passage = Arc::clone(&guard.passage);
    let opened = || passage.opened.load(Ordering::Acquire);
    let mut held = guard.held.clone();
    let gate = Gate::new(guard);
    let kind = served.kind();
    let made = async {
        if let Err(forbidden) = served.may_send(call).await {
            return Attempted::not_sent(forbidden);
        }
        match kind {
            ToolKind::Http(tool) => tool.call(call, gate).await,
            ToolKind::Rust(tool) => tool.call(call, gate).await,
            // Transactional effects run in the settling transaction (`super::transact`).
            ToolKind::Transactional(_) => Attempted::not_sent(NotSent::Tool),
        }
    };
    let over = async {
        held.over().await;
        if opened() && matches!(kind, ToolKind::Http(_)) {
            std::future::pending::<()>().await;
        }
    };
    let learned = tokio::select! {
        biased;
        made = AssertUnwindSafe(made).catch_unwind() => made.map(Attempted::into_learned),
        () = over => {
            let lost = Learned::Ambiguous(Ambiguity::WorkerLost);
            return if opened() { lost } else { Learned::NotSent(NotSent::ClaimLost) };
        }
    };
    match learned {
        Ok(learned) => learned,
        Err(_) if opened() => Learned::Ambiguous(Ambiguity::Panicked),
        Err(_) => Learned::Panicked,
    }
}

/// Looks an earlier attempt up, while the claim stands.
pub(super) async fn look_up(served: &ServedTool, call: &Call, mut held: Held) -> Evidence {
    tokio::select! {
        biased;
        evidence = served.lookup(call) => evidence,
        () = held.over() => Evidence::CannotTell(Blank::Unreachable),
    }
}
