//! The promises, each a module, against real PostgreSQL and RabbitMQ.

mod support;

mod broker_layer;
mod canonical_json;
mod consumer;
mod end_to_end;
mod faults;
mod pooler;
mod raw_amqp;
mod relay_confirms;
mod relay_parks;
mod relay_window;
mod submission;
mod tidy;
