//! What recovery and reconciliation promise about operations that may have been sent, a module each.

pub(crate) mod stage;

mod authority;
mod blanks;
mod late_proof;
mod lost_answers;
mod lost_workers;
mod names;
mod people;
mod postconditions;
mod refusals;
mod unknowns;
mod visibility;
