//! Contracts as people and models read them.
//!
//! Every form lists the tools and one more, `operation_status`, which has no effect: whoever is
//! told to wait needs something to ask, or the tool itself gets called again.
//!
//! Nothing here says more than the contract can hold. The application, not the model, makes the
//! operation key, so a repeated *call* may be a new operation: no tool is called safe to repeat
//! because oncebox keeps a *key* to one effect. Annotations are hints to whoever trusts this
//! registry; oncebox never decides by anybody's hints.

mod markdown;
mod words;

use serde_json::{Value, json};
use thiserror::Error;

use super::{CONTRACT_SCHEMA, Contract, EffectClass};

pub(super) use words::{effect, fields};

/// The name of the tool that asks.
pub const STATUS_TOOL: &str = "operation_status";

/// Longest tool name that the model APIs take, in characters.
const MAX_MODEL_NAME: usize = 64;

/// Whom a description is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// People.
    Markdown,
    /// `tools` of `OpenAI`'s chat completions.
    OpenAi,
    /// `tools` of Anthropic's messages.
    Anthropic,
    /// The result of MCP's `tools/list`.
    Mcp,
    /// The JSON Schema of contract files; the same whatever the contracts.
    Schema,
}

/// Why a set of contracts cannot be described together.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DescribeError {
    /// Model APIs take no dots in names, so that two names become one.
    #[error("{0} and {1} have the same name for a model; describe them apart")]
    SameName(String, String),
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 5] =
        [Self::Markdown, Self::OpenAi, Self::Anthropic, Self::Mcp, Self::Schema];

    /// The word for it on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Markdown => "markdown",
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Mcp => "mcp",
            Self::Schema => "schema",
        }
    }
}

/// Describes contracts, and the tool that asks for an operation's status.
///
/// # Errors
/// When two tools would have one name.
pub fn describe(contracts: &[&Contract], format: Format) -> Result<String, DescribeError> {
    Ok(match format {
        Format::Schema => CONTRACT_SCHEMA.to_owned(),
        Format::Markdown => markdown::page(contracts),
        Format::OpenAi => list(contracts, model_name, openai)?.pretty(),
        Format::Anthropic => list(contracts, model_name, anthropic)?.pretty(),
        Format::Mcp => {
            let Tools(tools) = list(contracts, ToOwned::to_owned, mcp)?;
            pretty(&json!({ "tools": tools }))
        }
    })
}

/// One tool, whoever reads it.
struct Tool<'a> {
    name: String,
    description: String,
    parameters: &'a Value,
    annotations: Value,
}

struct Tools(Vec<Value>);

impl Tools {
    fn pretty(self) -> String {
        pretty(&Value::Array(self.0))
    }
}

fn pretty(value: &Value) -> String {
    // A value made in memory, with texts for keys, always has a text.
    format!("{}\n", serde_json::to_string_pretty(value).unwrap_or_default())
}

fn list(
    contracts: &[&Contract],
    name: fn(&str) -> String,
    shape: fn(Tool<'_>) -> Value,
) -> Result<Tools, DescribeError> {
    let status_parameters = status_parameters();
    let mut named = vec![(name(STATUS_TOOL), STATUS_TOOL)];
    let mut tools = Vec::new();
    for contract in contracts {
        let tool = contract.tool.as_str();
        let model = name(tool);
        if let Some((_, other)) = named.iter().find(|(taken, _)| *taken == model) {
            return Err(DescribeError::SameName((*other).to_owned(), tool.to_owned()));
        }
        tools.push(shape(Tool {
            name: model.clone(),
            description: words::for_model(contract),
            parameters: &contract.arguments,
            annotations: annotations(contract),
        }));
        named.push((model, tool));
    }
    tools.push(shape(Tool {
        name: name(STATUS_TOOL),
        description: words::STATUS.to_owned(),
        parameters: &status_parameters,
        annotations: json!({
            "title": "Operation status",
            "readOnlyHint": true,
            "destructiveHint": false,
            "idempotentHint": true,
            "openWorldHint": false,
        }),
    }));
    Ok(Tools(tools))
}

/// Model APIs allow letters, digits, `_` and `-`.
fn model_name(tool: &str) -> String {
    tool.chars().map(|c| if c == '.' { '_' } else { c }).take(MAX_MODEL_NAME).collect()
}

fn openai(tool: Tool<'_>) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        },
    })
}

fn anthropic(tool: Tool<'_>) -> Value {
    json!({
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.parameters,
    })
}

fn mcp(tool: Tool<'_>) -> Value {
    json!({
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.parameters,
        "annotations": tool.annotations,
    })
}

fn status_parameters() -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["operation_id"],
        "properties": {
            "operation_id": {
                "type": "string",
                "description": "The operation_id of an earlier answer.",
            },
        },
    })
}

/// MCP's hints, true by contract or not given as true. `idempotentHint` speaks of calls with the
/// same arguments; the operation key is no argument, so a tool that needs one to be safe is not
/// idempotent in that sense.
fn annotations(contract: &Contract) -> Value {
    let class = contract.effect_class;
    let nothing_else = contract.repeat_side_effects.as_deref().is_some_and(<[_]>::is_empty);
    let (read_only, destructive, idempotent, open_world) = match class {
        EffectClass::Read => (nothing_else, false, nothing_else, true),
        EffectClass::NaturalIdempotent => (false, true, nothing_else, true),
        EffectClass::Append => (false, false, false, true),
        // Whether a command destroys, the contract does not say: the worse is assumed.
        EffectClass::KeyBased | EffectClass::Irreversible => (false, true, false, true),
        EffectClass::Transactional => (false, true, false, false),
    };
    json!({
        "title": contract.tool.as_str(),
        "readOnlyHint": read_only,
        "destructiveHint": destructive,
        "idempotentHint": idempotent,
        "openWorldHint": open_world,
    })
}
