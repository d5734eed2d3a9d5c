//! What the consumer promises, a module each.

mod kit;

mod busy_rows;
mod channel_loss;
mod draining;
mod fencing;
mod kills;
mod leases;
mod lost_response;
mod one_effect;
mod ordering;
mod poison;
mod retries;
mod settle_always;
mod transactional;
mod versions_min;
