//! What is good to know about a contract.

use crate::domain::contract::schema_walk::uses_format;
use crate::domain::contract::{Contract, Recoverability, duration_text};

use super::Listed;

pub(super) fn collect(contract: &Contract, listed: &mut Listed<'_>) {
    listed.note(true, &[], contract.after_effect_before_ack());
    listed.note(
        contract.http().is_none(),
        &["downstream"],
        "no downstream.http: a tool of this name written in Rust must be registered, or no worker serves it",
    );
    listed.note(
        contract.twins.hold && !contract.twins.stated,
        &["twins"],
        "is missing, so that the same material arguments under a new key are held while the first operation is unfinished; write twins: {hold: false} where equal arguments are meant",
    );
    listed.note(
        contract.retention.result.is_some() || contract.retention.tombstone.is_some(),
        &["retention"],
        "is not carried out in this release: nothing is dropped, and no record expires",
    );
    listed.note(
        uses_format(&contract.arguments),
        &["arguments"],
        "format describes and checks nothing (JSON Schema 2020-12's default); use pattern for what must hold",
    );
    let normalised = contract.fingerprint.text.keys().next().is_some();
    listed.note(
        normalised,
        &["fingerprint", "text"],
        "text is normalised for the comparison only; the downstream gets what was sent first",
    );
    for place in contract.fingerprint.defaults.keys() {
        listed.note(
            true,
            &["fingerprint", "defaults", &place.to_string()],
            "an omitted value is not sent; this is right only while the downstream has the same default",
        );
    }
}

impl Contract {
    /// What happens when a worker dies after the effect and before it acknowledged the message: the
    /// question that tells whether a tool can be automated.
    #[must_use]
    pub fn after_effect_before_ack(&self) -> String {
        let begin = "a worker that dies after the effect and before the acknowledgement";
        match self.recoverability() {
            Recoverability::Transactional => format!(
                "{begin} has committed effect and settlement together; the next delivery finds the operation applied"
            ),
            Recoverability::ResendAlways => {
                format!(
                    "{begin} leaves an expired lease; the request is sent again, which ends in the same state"
                )
            }
            Recoverability::ResendWithin { window } => format!(
                "{begin} leaves an expired lease; the request is sent again under the same downstream key while the downstream remembers it ({} from the first use), and after that {}",
                duration_text(window),
                if self.lookup().is_some() {
                    "the effect is looked up"
                } else {
                    "the operation is unknown"
                }
            ),
            Recoverability::None if self.blind() => format!(
                "{begin} leaves an operation of which nobody can tell the outcome: it is unknown, nothing is sent again, and {} decides",
                self.owner.as_ref().map_or("an operator", |owner| owner.reconciliation.as_str())
            ),
            Recoverability::None => format!(
                "{begin} leaves an expired lease; nothing is sent before the effect has been looked up"
            ),
        }
    }
}
