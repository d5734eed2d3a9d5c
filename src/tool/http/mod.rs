//! The HTTP tool: one request, one answer, and an honest account of what the wire showed.
//!
//! It speaks HTTP/1.1 on connections of its own, because a client that repeats requests or follows
//! redirects by itself would make effects that no record knows of. What was learned depends on
//! what really happened:
//!
//! | on the wire | learned |
//! |---|---|
//! | the request could not be built, or no connection was made | `NotSent` |
//! | the gate stayed closed, or its time passed before the first byte | `NotSent` |
//! | an error, and no byte of the request had left | `NotSent` |
//! | a whole answer whose status the contract lists | what the list says |
//! | a whole 401 or 403 that no list names | `Denied` |
//! | anything else after the first byte | `Ambiguous` |
//!
//! Absent on purpose: redirects, cookies, proxies, compression, HTTP/2, pipelining, and any second
//! send once a byte has left.

mod answer;
mod client;
mod connect;
mod connection;
mod pool;
mod request;
mod spec;
#[cfg(test)]
mod tests;
mod wire;

pub use client::HttpClient;
pub use connect::TlsSetupError;
pub use request::RenderedRequest;
pub use spec::HttpCallSpec;
