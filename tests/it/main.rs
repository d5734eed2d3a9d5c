//! The promises, each a module, against real PostgreSQL and RabbitMQ.

mod support;

mod broker_layer;
mod canonical_json;
mod end_to_end;
mod raw_amqp;
mod relay_broker_down;
mod relay_confirms;
mod relay_parks;
mod relay_scan;
mod relay_wakeup;
mod relay_window;
mod sweep;
mod tcp_valve;
