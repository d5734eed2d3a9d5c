//! Arguments against their schema.
//!
//! Patterns run on an engine whose time is linear in the text: arguments come from models, and a
//! backtracking engine would let one of them stop a worker. Look-around and back-references are
//! refused when the schema is compiled. `format` says nothing, as JSON Schema 2020-12 has it by
//! default: what a validator release calls an e-mail address must not change what is a valid
//! request. No reference is ever fetched.

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;
use thiserror::Error;

use crate::domain::json::Json;
use crate::domain::pointer::Pointer;

use super::messages;

/// How many problems one answer shows.
pub const MAX_PROBLEMS: usize = 20;

/// The name of the only dialect.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Most memory that one compiled pattern may take, in bytes.
const PATTERN_BYTES: usize = 1024 * 1024;

/// A compiled arguments schema. Compile once, check often, from any thread.
#[derive(Debug)]
pub struct ArgumentsCheck(Validator);

/// A place in the arguments that is not as the schema says. Never shows a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArgumentProblem {
    /// The place.
    pub pointer: Pointer,
    /// What the schema asks there.
    pub message: String,
}

/// Why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SchemaError {
    /// Another dialect than 2020-12.
    #[error("$schema must be {DIALECT}, or left out")]
    Dialect,
    /// The schema breaks the rules of schemas, refers to something outside itself, or has a
    /// pattern that cannot run in linear time.
    #[error("is no usable JSON Schema: {0}")]
    Unusable(String),
}

impl ArgumentsCheck {
    /// Compiles a contract's `arguments`.
    ///
    /// # Errors
    /// When the schema cannot be used; nothing can be checked by it, and its tool not served.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        if schema.get("$schema").is_some_and(|dialect| dialect.as_str() != Some(DIALECT)) {
            return Err(SchemaError::Dialect);
        }
        jsonschema::options()
            .with_draft(Draft::Draft202012)
            .should_validate_formats(false)
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES))
            .offline()
            .build(schema)
            .map(Self)
            // A schema is the author's own text: its words may be shown.
            .map_err(|error| SchemaError::Unusable(one_line(&error.to_string())))
    }

    /// Checks arguments.
    ///
    /// # Errors
    /// What does not fit, at most [`MAX_PROBLEMS`], in the order of the places. The same arguments will be refused again under
    /// this version.
    pub fn check(&self, arguments: &Json) -> Result<(), Vec<ArgumentProblem>> {
        let value = arguments.to_value();
        let mut problems: Vec<ArgumentProblem> = self
            .0
            .iter_errors(&value)
            .take(MAX_PROBLEMS)
            .flat_map(|error| messages::problems(&error))
            .take(MAX_PROBLEMS)
            .collect();
        problems.sort();
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect()
}
