//! The pure half: data in, decision out. No clock, no I/O, nothing asynchronous.
//!
//! Identity comes first: which action is this ([`key`]), and were these its parameters
//! ([`fingerprint`], from a document that [`json`] has read strictly and [`canonical`] has written
//! in its one form).

pub mod attempt;
pub mod canonical;
pub mod fingerprint;
pub mod json;
pub mod key;
pub mod pointer;
#[cfg(test)]
mod samples;
