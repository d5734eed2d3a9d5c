//! Whatever is cut, killed, frozen or emptied on the way: one effect or an honest `unknown`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics fails, as it should"
)]

mod cut_postgres;
mod cut_rabbitmq;
mod killed;
mod lost_broker;
mod own_servers;
mod restarts;
mod stage;
mod young_queue;
