//! Integration tests, one module a promise.

mod broker_layer;
mod raw_amqp;
mod tcp_valve;
