//! All SQL: one statement a function, on the caller's connection.
//!
//! A function says which lock it takes and what zero rows mean. The caller owns the transaction
//! ([`Link::transaction`]), so that insert or lock → decide → write → commit is one piece.
//!
//! Absent on purpose: decisions (they are in [`crate::domain`]), a connection pool for workers (each
//! loop owns one connection, see [`Link`]), and anything of RabbitMQ.

mod link;
mod migrate;
mod row;
mod operations;
mod leases;
mod live;
mod order;
mod approvals;
mod grants;
mod twins;
mod lookups;
mod overdue;
mod outbox;
mod trace;
mod sweep;
mod submissions;
mod contracts;
mod workers;
mod dead_letters;
mod put_back;
mod probe;
mod listen;

/// One database connection, inside a transaction of the caller's.
pub type Connection = sqlx::postgres::PgConnection;

pub use approvals::*;
pub use contracts::*;
pub use dead_letters::*;
pub use grants::*;
pub use leases::*;
pub use link::{DatabaseUrl, Link, StoreError, leave_savepoint, savepoint, server_message};
pub use listen::WakeUp;
pub use live::*;
pub use lookups::*;
pub use migrate::{Migrated, Publisher as PublisherRole, SchemaState, migrate, schema_state};
pub use operations::*;
pub use order::*;
pub use outbox::*;
pub use overdue::*;
pub use probe::*;
pub use put_back::*;
pub use row::Loaded;
pub use submissions::*;
pub use sweep::*;
pub use trace::*;
pub use twins::*;
pub use workers::*;
