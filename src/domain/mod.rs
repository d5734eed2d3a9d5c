//! The pure half: data in, decision out. No clock, no I/O, nothing asynchronous.
//!
//! Identity comes first: which action is this ([`key`]), and were these its parameters
//! ([`fingerprint`], from a document that [`json`] has read strictly and [`canonical`] has written
//! in its one form). A [`contract`] says which parameters count, what the downstream's answers
//! prove and what a retry may do; an [`attempt`] says what was learned.

pub mod attempt;
pub mod canonical;
pub mod contract;
pub mod fingerprint;
pub mod json;
pub mod key;
pub mod pointer;
