//! Creating tickets and looking for them.

use std::time::Duration;

use serde_json::json;

use super::Downstream;
use super::calls::{Calls, Kind};

/// `POST /tickets`; the subject is the key.
pub(crate) struct Tickets;

/// `GET /tickets?key=`, `?reference=` and `/tickets/ID`; the subject is what is asked for.
pub(crate) struct Lookups;

impl Kind for Tickets {
    const NAME: &'static str = "tickets";
}

impl Kind for Lookups {
    const NAME: &'static str = "lookup";
}

impl Calls<'_, Lookups> {
    /// The next `times` say that there is no ticket, whether there is or not.
    pub(crate) async fn say_absent(&self, times: u64) {
        self.answer(404, times).await;
    }

    /// From now on all look-ups see a ticket only when it is this old; zero: at once.
    pub(crate) async fn invisible_for(&self, age: Duration) {
        let age = u64::try_from(age.as_millis()).unwrap();
        self.downstream.control(json!({"visible_after_ms": age})).await;
    }
}

impl Downstream {
    /// The calls that make tickets at once.
    pub(crate) fn tickets(&self) -> Calls<'_, Tickets> {
        Calls::all(self)
    }

    /// The calls that look for tickets.
    pub(crate) fn lookups(&self) -> Calls<'_, Lookups> {
        Calls::all(self)
    }
}
