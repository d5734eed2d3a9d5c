//! The promises, each a module, against real PostgreSQL and RabbitMQ.

mod support;

mod broker_layer;
mod canonical_json;
mod consumer;
mod end_to_end;
mod faults;
mod pooler;
mod raw_amqp;
mod relay_broker_down;
mod relay_confirms;
mod relay_parks;
mod relay_scan;
mod relay_wakeup;
mod relay_window;
mod submission;
mod sweep;
mod tidy;
