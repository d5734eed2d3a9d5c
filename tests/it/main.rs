//! The promises, each a module, against real PostgreSQL and RabbitMQ.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that panics fails, as it should; what it prints is shown with its failure"
)]

mod support;

mod broker_layer;
mod canonical_json;
mod command_line;
mod consumer;
mod end_to_end;
mod fake_downstream;
mod faults;
mod kept_manual;
// Not yet seen green as a whole within the suite's time: `cargo nextest run --features kill_everywhere`.
#[cfg(feature = "kill_everywhere")]
mod kill_everywhere;
mod model;
mod permissions;
mod pooler;
mod provider_jobs;
mod raw_amqp;
mod recovery;
mod relay_broker_down;
mod relay_confirms;
mod relay_parks;
mod relay_scan;
mod relay_silent_queue;
mod relay_wakeup;
mod relay_window;
mod results;
mod reviewed_trace;
mod submission;
mod sweep;
mod tidy;
mod twins;
