//! The pure half: data in, decision out. No clock, no I/O, nothing asynchronous.
//!
//! Identity comes first: which action is this ([`key`]), and were these its parameters
//! ([`fingerprint`], from a document that [`json`] has read strictly and [`canonical`] has written
//! in its one form). A [`contract`] says which parameters count, what the downstream's answers
//! prove and what a retry may do; an [`attempt`] says what was learned.

#![warn(clippy::wildcard_enum_match_arm)]

pub mod nearest;
pub mod pointer;
pub mod json;
pub mod key;
pub mod canonical;
pub mod fingerprint;
pub mod contract;
pub mod reason;
pub mod lifecycle;
pub mod operation;
pub mod attempt;
pub mod evidence;
pub mod rule;
pub mod retry;
pub mod step;
pub mod permission;
pub mod claim;
pub mod places;
pub mod recovery;
pub mod settle;
pub mod parking;
pub mod verbs;
pub mod outcome;
pub mod trace_review;

#[cfg(test)]
mod samples;
#[cfg(test)]
mod records;
