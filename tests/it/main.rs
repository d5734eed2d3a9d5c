<<<<<<< HEAD
//! The promises, each tested at the boundary where it could be lost.

mod canonical_json;
=======
//! Integration tests, one module a promise.

mod broker_layer;
mod raw_amqp;
mod tcp_valve;
>>>>>>> broker
