//! What is promised about work that a provider accepts and finishes later, a module each.

mod endings;
mod lost_messages;
mod lost_submissions;
mod polling;
mod stale_owners;
