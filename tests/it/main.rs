//! The promises, each a module, against real PostgreSQL and RabbitMQ.
mod broker_layer;
mod canonical_json;
mod raw_amqp;
mod tcp_valve;
