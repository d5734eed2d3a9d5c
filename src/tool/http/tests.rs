//! What is learned is what happened on the wire, whatever happens there.

mod answers;
mod kept;
mod kit;
mod policy;
mod questions;
mod sending;
mod server;
mod tls;
mod tool;
