//! What must hold between the parts of a contract. A contract that breaks one of these is not
//! served; what is only doubtful is [`super::review`]'s business.

mod answers;
mod arguments;
mod questions;
mod times;

use std::time::Duration;

use crate::domain::key::shape;
use crate::domain::pointer::Pointer;

use super::template::{Placeholder, TextTemplate};
use super::{Contract, EffectClass, HttpRequest, Problem};

/// What leases and windows carry for a fail-over's clock jump, unless the deployment says
/// otherwise.
pub const DEFAULT_MARGIN: Duration = Duration::from_secs(5);

/// Problems as they are found.
pub(super) struct Found(Vec<Problem>);

impl Found {
    /// Notes a problem at a place when `broken`.
    fn when(&mut self, broken: bool, place: &[&str], message: impl Into<String>) {
        if broken {
            self.0.push(Problem::new(pointer(place), message));
        }
    }
}

fn pointer(place: &[&str]) -> Pointer {
    Pointer::from(place.iter().map(ToString::to_string).collect::<Vec<_>>())
}

impl Contract {
    /// Every relation that does not hold, in the order of the places. `margin` is what the
    /// deployment's leases and windows carry.
    #[must_use]
    pub fn problems(&self, margin: Duration) -> Vec<Problem> {
        let mut found = Found(Vec::new());
        times::check(self, margin, &mut found);
        arguments::check(self, &mut found);
        class(self, &mut found);
        questions::check(self, &mut found);
        if let Some(http) = self.http() {
            answers::check(self, http, &mut found);
            request(self, http, &mut found);
        }
        found.0.sort();
        found.0.dedup();
        found.0
    }
}

fn class(contract: &Contract, found: &mut Found) {
    let class = contract.effect_class;
    found.when(
        contract.stale_write_harmless && class != EffectClass::NaturalIdempotent,
        &["stale_write"],
        "only natural_idempotent tools overwrite: for any other class this would allow a second effect",
    );
    found.when(
        class == EffectClass::Transactional && contract.downstream.is_some(),
        &["downstream"],
        "a transactional tool writes to this database in the settling transaction and has no downstream",
    );
    found.when(
        class == EffectClass::Transactional && contract.postcondition.is_some(),
        &["postcondition"],
        "a transactional effect commits with the operation's own record, which nothing could take back",
    );
}

fn request(contract: &Contract, http: &HttpRequest, found: &mut Found) {
    let place = |inner| ["downstream", "http", inner];
    found.when(
        http.body.is_some() && !http.method.may_have_body(),
        &place("body"),
        "GET, HEAD and DELETE carry no body",
    );
    let keyed = http.placeholders().contains(&&Placeholder::IdempotencyKey);
    let promised = contract.downstream.as_ref().is_some_and(|d| d.idempotency.is_some());
    found.when(
        promised && !keyed,
        &["downstream", "idempotency"],
        "the downstream is said to deduplicate, but the request does not carry {idempotency_key}",
    );
    found.when(
        http.placeholders().contains(&&Placeholder::Job),
        &["downstream", "http"],
        "{job} is known to a poll only, and to questions after it",
    );
    found.when(
        http.placeholders().contains(&&Placeholder::Receipt),
        &["downstream", "http"],
        "{receipt} is known only when the effect is made",
    );
    plain_secrets(&["downstream", "http"], &http.headers, found);
}

fn plain_secrets(place: &[&str], headers: &[(String, TextTemplate)], found: &mut Found) {
    for (name, value) in headers {
        found.when(
            value.literals().any(shape::holds_secret),
            &[place, &["headers", name]].concat(),
            "holds what looks like a secret; refer to it as ${env:NAME} or ${file:/path}",
        );
    }
}
