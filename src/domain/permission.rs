//! Whether an operation may be sent: approvals and grants, as the database holds them.
//!
//! What is asked outside the database (a policy, a precondition) ends in the same words, as
//! [`NotSent::Forbidden`](super::attempt::NotSent). Every check guards sending, never finding out.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;

use super::attempt::Denial;
use super::canonical::{NumberRule, canonical};
use super::contract::Approval;
use super::fingerprint::FingerprintRule;
use super::json::{self, Json, JsonError, JsonLimits};
use super::operation::Timestamp;
use super::pointer::{Pointer, PointerError};

/// What the database says about sending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// It may be sent.
    Allowed,
    /// A person has to be asked first.
    NeedsApproval,
    /// It may not be sent.
    Denied(Denial),
}

/// Where an approval stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalState {
    /// Nobody has answered.
    Requested,
    /// A person said yes, for a time.
    Approved {
        /// Until when it holds.
        expires_at: Timestamp,
    },
    /// A person said no.
    Denied,
    /// It was taken back.
    Withdrawn,
}

/// One row of table `grants` that is in force now.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// Places with the values that the grant is limited to; empty: none.
    pub arguments: BTreeMap<Pointer, Vec<Json>>,
}

/// Why a text is no limit of a grant.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LimitError {
    /// It is no JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// It is JSON of another form.
    #[error("an object is needed, such as {{\"/queue_id\": [\"support\"]}}")]
    NotObject,
    /// A member's name is no place.
    #[error("{0}; each member names a place of the arguments, such as /queue_id")]
    NoPlace(#[from] PointerError),
    /// Nothing would be allowed there.
    #[error("{}: an empty list allows nothing; name at least one value", .0.brief())]
    NoValue(Pointer),
}

impl Grant {
    /// Reads the limits of a grant: a JSON object of places, each with the list of values that are
    /// allowed there, or with one value alone.
    ///
    /// # Errors
    /// Says what is wrong with the text.
    pub fn limited_to(text: &str) -> Result<Self, LimitError> {
        let Json::Object(members) = json::parse(text.as_bytes(), &JsonLimits::default())? else {
            return Err(LimitError::NotObject);
        };
        let limit = |(place, allowed): (String, Json)| {
            let place = Pointer::parse(&place)?;
            let values = match allowed {
                Json::Array(values) if values.is_empty() => return Err(LimitError::NoValue(place)),
                Json::Array(values) => values,
                one @ (Json::Null
                | Json::Bool(_)
                | Json::Number(_)
                | Json::String(_)
                | Json::Object(_)) => vec![one],
            };
            Ok((place, values))
        };
        Ok(Self { arguments: members.into_iter().map(limit).collect::<Result<_, _>>()? })
    }
}

/// Whether a request with these arguments needs an approval. `rule` says what an omission means and
/// which texts are the same: whoever leaves a default out, or writes it in capitals, asks for the same
/// effect.
#[must_use]
pub fn approval_needed(approval: &Approval, arguments: &Json, rule: &FingerprintRule) -> bool {
    let names = |(place, values): (&Pointer, &Vec<Json>)| {
        let values: Vec<Json> = values.iter().map(|value| rule.same_text(value, place)).collect();
        rule.value_at(arguments, place).is_some_and(|found| is_one_of(&found, &values))
    };
    approval.when.is_empty() || approval.when.iter().any(names)
}

/// Whether one of `grants` allows these arguments. A place that is not there fits no limit.
#[must_use]
pub fn granted(grants: &[Grant], arguments: &Json) -> bool {
    grants.iter().any(|grant| {
        grant.arguments.iter().all(|(place, values)| {
            arguments.at(place).is_some_and(|found| is_one_of(found, values))
        })
    })
}

/// Both answers together. `granted` is `None` where the contract asks for no grant, `approval` where
/// it needs none; `Some(None)` is an approval that nobody was asked for.
#[must_use]
pub fn permission(
    granted: Option<bool>,
    approval: Option<Option<ApprovalState>>,
    now: Timestamp,
    margin: Duration,
) -> Permission {
    if granted == Some(false) {
        return Permission::Denied(Denial::NotAuthorized);
    }
    match approval {
        None => Permission::Allowed,
        Some(None | Some(ApprovalState::Requested)) => Permission::NeedsApproval,
        Some(Some(ApprovalState::Denied)) => Permission::Denied(Denial::ApprovalDenied),
        Some(Some(ApprovalState::Withdrawn)) => Permission::Denied(Denial::ApprovalWithdrawn),
        Some(Some(ApprovalState::Approved { expires_at })) => {
            if now.after(margin) < expires_at {
                Permission::Allowed
            } else {
                Permission::Denied(Denial::ApprovalExpired)
            }
        }
    }
}

/// Equal as decimal numbers too: a limit of 10 also means 10.0, whoever wrote it.
fn is_one_of(found: &Json, values: &[Json]) -> bool {
    let same = |value: &Json| canonical(value, NumberRule::Numeric);
    values.iter().any(|value| same(value) == same(found))
}
