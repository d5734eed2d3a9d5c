//! All of RabbitMQ: connection, topology, wire form, publishing, consuming, dead letters.
//!
//! The layer moves bytes and tells the truth about what happened to them. It decides nothing about
//! operations, writes no SQL and never recovers a connection behind its caller's back: a loss is
//! noticed in bounded time and reported, and the caller's `run` loop connects again. Every wait has
//! a deadline, because a peer that is gone without a word answers nothing.
//!
//! Publishing and consuming use separate connections (two [`Broker`]s): a memory alarm blocks the
//! one that publishes, and acknowledgements have to go on.
//!
//! The client library prints returned messages whole at level `warn`; [`SILENCED_LOG_TARGETS`]
//! names the targets that must stay off, since headers hold whole operation keys.

pub mod amqp_url;
pub mod connection;
mod guarded_stream;
mod socket;
mod wire_guard;

pub mod topology;

pub mod envelope;
mod header_text;
pub mod outgoing;

pub mod publisher;

pub mod consumer;
pub mod delivery;
mod lane;
pub mod silent;

pub mod dead;

mod version;

pub mod error;

pub use amqp_url::AmqpUrl;
pub use connection::{Broker, BrokerSettings, Loss};
pub use consumer::{Consumer, ConsumerEnd, ConsumerEvent};
pub use dead::{DeadMessage, DeadQueue};
pub use delivery::{AckHandle, AckResult, Delivery};
pub use envelope::{Envelope, IncomingMessage, Unreadable, read_envelope};
pub use error::BrokerError;
pub use outgoing::{OutgoingEvent, OutgoingMessage};
pub use publisher::{EventPublisher, PublishResult, Publisher};
pub use silent::SilentQueues;
pub use topology::Names;
pub use version::broker_version;

/// What a person can do about a queue that gives no answer while the broker does.
pub const IF_UNSERVED: &str = "if this lasts, delete the queue on the broker: it is declared again by itself and nothing is lost, what waited in it is published again";

/// Log targets of the client library that print message contents.
pub const SILENCED_LOG_TARGETS: &[&str] = &["lapin::returned_messages"];

/// Off unless somebody asks for it: what goes wrong is reported by this layer, once, and the client
/// library calls every orderly end of a channel an error.
pub const QUIET_LOG_DIRECTIVE: &str = "lapin=off";
