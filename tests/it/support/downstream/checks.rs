//! What is asked before the first send, and after the effect.

use super::Downstream;
use super::calls::{Calls, Kind};

/// `GET /queues/QUEUE/open`; the subject is the queue.
pub(crate) struct Preconditions;

/// `GET /tickets/ID/verified`, `/tickets/verified?key=`; the subject is the receipt, or the key.
pub(crate) struct Postconditions;

impl Kind for Preconditions {
    const NAME: &'static str = "precondition";
}

impl Kind for Postconditions {
    const NAME: &'static str = "postcondition";
}

impl Downstream {
    /// The calls that ask whether a queue is open.
    pub(crate) fn preconditions(&self) -> Calls<'_, Preconditions> {
        Calls::all(self)
    }

    /// The calls that ask whether a ticket is as it should be.
    pub(crate) fn postconditions(&self) -> Calls<'_, Postconditions> {
        Calls::all(self)
    }
}
