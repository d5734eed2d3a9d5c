//! How work comes in: a submission inside the caller's own transaction; and how its outcome is looked at.
//!
//! The other door is the SQL function `oncebox.submit`; both go through the same insert and give the
//! same envelope. Later releases add HTTP and webhooks here.

mod candidate;
mod contracts;
mod error;
pub mod results;
pub mod submission;
pub mod submit;

pub use error::SubmitError;
pub use results::{Asker, ResultError, Results};
pub use submission::Submission;
pub use submit::Publisher;
