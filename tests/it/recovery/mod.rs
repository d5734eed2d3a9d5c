//! What recovery and reconciliation promise about operations that may have been sent, a module each.

pub(crate) mod stage;

mod lost_answers;
