//! Whole contract files, through the same door as in production.

mod described;
mod files;
mod questions;
mod recovery;
mod refused;
mod reviewed;
mod worksheet;

use crate::domain::contract::{Contract, DEFAULT_MARGIN, Severity};
use crate::domain::json::{Json, JsonLimits, parse};

use super::*;

const TICKETS: &str = include_str!("../../contracts/tickets.create.yaml");
const MAIL: &str = include_str!("../../contracts/mail.send.yaml");

/// A file with every section.
const EVERYTHING: &str = include_str!("../../tests/fixtures/contracts/everything.yaml");

fn contract(text: &str) -> Contract {
    read(text, DEFAULT_MARGIN).unwrap_or_else(|error| panic!("{error}"))
}

fn json(text: &str) -> Json {
    parse(text.as_bytes(), &JsonLimits::default()).unwrap()
}

/// `text` with `from` replaced once; a change that changes nothing would test nothing.
fn changed(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from:?} must stand once in the contract");
    text.replace(from, to)
}

fn lines(text: &str) -> Vec<String> {
    match read(text, DEFAULT_MARGIN) {
        Ok(_) => vec![],
        Err(ContractTextError::Problems(problems)) => problems.iter().map(line).collect(),
        Err(other) => vec![other.to_string()],
    }
}
