//! The promises, each a module, against real PostgreSQL and RabbitMQ.

mod support;

mod broker_layer;
mod canonical_json;
mod end_to_end;
mod faults;
mod raw_amqp;
mod submission;
mod tidy;
