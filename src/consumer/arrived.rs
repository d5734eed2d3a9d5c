//! A delivery that can be understood, and the dead letter of one that cannot.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::broker::{AckHandle, Delivery, IncomingMessage};
use crate::store::{DeadLetter, letter_id};

/// How long a busy row is asked for again inside the process before its message is put off.
const BUSY_FOR: Duration = Duration::from_secs(1);

/// How long a delivery is held for a tool that all processes together have filled, before its message
/// is put off: far below the broker's ack time-out, and longer than a short queue takes.
const HELD_FOR: Duration = Duration::from_secs(30);

/// A delivery that names a record.
#[derive(Debug)]
pub(super) struct Arrived {
    /// The record it names; what it says of tenant and key is only compared.
    pub(super) operation: Uuid,
    pub(super) tenant: String,
    pub(super) key: String,
    pub(super) message: IncomingMessage,
    pub(super) handle: AckHandle,
    came: Instant,
    found_no_place: bool,
    busy_since: Option<Instant>,
}

impl Arrived {
    /// Reads a delivery.
    ///
    /// # Errors
    /// The dead letter to keep, and the handle to ack once it is kept.
    pub(super) fn read(delivery: Delivery) -> Result<Self, Box<(DeadLetter, AckHandle)>> {
        let Delivery { message, handle } = delivery;
        match message.envelope() {
            Ok(envelope) => Ok(Self {
                operation: envelope.operation_id,
                tenant: envelope.tenant,
                key: envelope.operation_key,
                message,
                handle,
                came: Instant::now(),
                found_no_place: false,
                busy_since: None,
            }),
            Err(unreadable) => Err(Box::new((letter(&message, unreadable.reason), handle))),
        }
    }

    /// The dead letter of a message that can be read but not taken.
    pub(super) fn letter(&self, reason: &str) -> DeadLetter {
        let letter = letter(&self.message, reason);
        DeadLetter { operation: Some(self.operation), tenant: Some(self.tenant.clone()), ..letter }
    }

    /// Its row was busy. Says whether it has been busy long enough.
    pub(super) fn busy_too_long(&mut self) -> bool {
        self.busy_since.get_or_insert_with(Instant::now).elapsed() > BUSY_FOR
    }

    /// All processes together had as many of its tool's effects as there may be.
    pub(super) fn found_no_place(&mut self) {
        self.found_no_place = true;
    }

    /// Whether it has been here, without a place, long enough. What was never asked for may need none.
    pub(super) fn held_too_long(&self) -> bool {
        self.found_no_place && self.came.elapsed() > HELD_FOR
    }
}

fn letter(message: &IncomingMessage, reason: &str) -> DeadLetter {
    let message_id = message.message_id();
    DeadLetter {
        id: letter_id(&message.tool, message_id.as_deref(), &message.body),
        queue: message.tool.clone(),
        reason: reason.to_owned(),
        body: message.body.clone(),
        headers: message.headers_json().to_string(),
        message_id,
        operation: None,
        tenant: None,
    }
}
