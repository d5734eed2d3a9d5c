//! What the consumer promises, a module each.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics fails, as it should"
)]

mod dam;
pub(crate) mod kit;

mod busy_rows;
mod channel_loss;
mod draining;
mod fencing;
mod kills;
mod leases;
mod lost_response;
mod one_effect;
mod order_heads;
mod ordering;
mod poison;
mod retries;
mod settle_always;
mod total;
mod transactional;
mod versions_min;
