//! oncebox turns a proposed action (an agent's tool call, a job, a webhook) into **one business
//! effect**, however often it is submitted, published, delivered or retried, or it stops and says
//! that it cannot know.
//!
//! It is a transactional outbox, a relay to RabbitMQ and an idempotent consumer round one durable
//! operation record in PostgreSQL.
//!
//! # What it promises
//!
//! - A submission commits or rolls back with the caller's own rows: record and outbox row are there
//!   together or not at all.
//! - One operation key stands for one request. The same request again gets the stored outcome;
//!   another request under that key is rejected.
//! - An operation whose request may have left is never sent again blindly: it is sent again under
//!   the same key while the downstream still recognises that key (or where its contract says that a
//!   repeat does no harm), else it ends `unknown`.
//! - `applied` means that there is a receipt. A time-out is never success and never failure.
//! - The record is the truth, a message is a hint: losing every message in the broker loses no
//!   operation.
//!
//! # What it does not promise
//!
//! - Exactly-once delivery. Messages come twice, and so may requests to a downstream that
//!   deduplicates them; the *effect* is what happens once.
//! - An answer in every case. Where a downstream neither deduplicates nor can be asked, a lost
//!   answer ends `unknown` and waits for a person.
//! - More than a downstream keeps. A contract that calls a service deduplicating when it is not
//!   makes two effects possible; nothing here can notice.
//!
//! # An operation's way
//!
//! 1. [`ingress`] writes record and outbox row in the caller's transaction.
//! 2. [`relay`] publishes the row, waits for the broker's confirm, removes the row.
//! 3. [`consumer`] claims the record under a lease and a fencing token, makes one attempt through
//!    its [`tool`], settles what was learned, and only then acks the message.
//! 4. [`maintain`] publishes again what nobody works on.
//! 5. [`operator`] is the command line, for what needs a person.
//!
//! Every step on a record has one shape: lock → decide (in [`domain`], pure) → write under the
//! fencing token → commit. No effect runs inside a transaction, except a transactional tool's, whose
//! effect *is* a write to this database.
//!
//! # Publishing
//!
//! ```no_run
//! use oncebox::domain::outcome::Status;
//! use oncebox::ingress::{Publisher, Submission};
//! use sqlx::{Connection as _, PgConnection};
//!
//! # async fn place_order(publisher: &Publisher, url: &str) -> Result<(), Box<dyn std::error::Error>> {
//! let mut connection = PgConnection::connect(url).await?;
//! let mut transaction = connection.begin().await?;
//! sqlx::query("insert into orders (number) values ('o-1')").execute(&mut *transaction).await?;
//! let outcome = publisher
//!     .submit(&mut transaction, &Submission {
//!         tenant: "acme".into(),
//!         environment: "production".into(),
//!         workflow_id: "order-o-1".into(),
//!         step_id: "record-issue".into(),
//!         tool: "tickets.create".into(),
//!         arguments: r#"{"queue_id": "orders", "subject": "Order o-1", "body": "Please pack."}"#.into(),
//!         ..Submission::default()
//!     })
//!     .await?;
//! match outcome.status {
//!     // The key belongs to another request: no order either.
//!     Status::Rejected => transaction.rollback().await?,
//!     _ => transaction.commit().await?,
//! }
//! # Ok(()) }
//! ```
//!
//! The modules stand in reading order; `ARCHITECTURE.md` has the map, `docs/adr` the choices.

pub mod domain;
pub mod contract_file;
pub mod ingress;
pub mod relay;
pub mod consumer;
pub mod serving;
pub mod tool;
pub mod reconcile;
pub mod maintain;
pub mod operator;
pub mod store;
pub mod broker;
pub mod config;
pub mod runtime;
mod shutdown;
pub mod telemetry;
mod chance;

/// The README's Rust, compiled with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
