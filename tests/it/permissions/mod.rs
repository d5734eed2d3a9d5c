//! Who may is asked right before each send; what is lost after an unproved send never makes the
//! operation `rejected`; and a result is handed out to those who may see it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics fails, as it should"
)]

mod approvals;
mod approvals_in_time;
mod approvals_taken_back;
mod grants;
mod grants_revoked;
mod kit;
mod operators;
mod policy;
mod preconditions;
mod results;
mod twins_told;
