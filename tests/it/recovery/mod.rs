//! What recovery and reconciliation promise about operations that may have been sent, a module each.

pub(crate) mod stage;

mod authority;
mod blanks;
mod lost_answers;
mod visibility;
