//! Whoever listens is told how an operation ended, at least once, in the words of that moment; and
//! nobody's work depends on it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics fails, as it should"
)]

mod endings;
mod listener;
mod publishing;
mod registry;
