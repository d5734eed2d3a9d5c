//! What a schema asks for, in words that hold nothing of what was sent but names of members.

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use serde_json::Value;

use crate::domain::pointer::Pointer;

use super::ArgumentProblem;

/// How many characters of the schema's own text a message quotes.
const QUOTE_CHARS: usize = 120;

/// The problems behind one finding of the validator.
pub(super) fn problems(error: &ValidationError<'_>) -> Vec<ArgumentProblem> {
    let at = Pointer::parse(error.instance_path().as_str()).unwrap_or_default();
    let each = |names: &[String]| {
        let problem = |name: &String| ArgumentProblem {
            pointer: at.child(name.as_str()),
            message: "is not known here; remove it".to_owned(),
        };
        names.iter().map(problem).collect()
    };
    match error.kind() {
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            each(unexpected)
        }
        Kind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            vec![ArgumentProblem { pointer: at.child(name), message: "is missing".to_owned() }]
        }
        kind => vec![ArgumentProblem { message: message(kind), pointer: at }],
    }
}

fn message(kind: &Kind) -> String {
    match kind {
        Kind::Type { kind } => format!("must be of type {}", types(kind)),
        Kind::Enum { options } => format!("must be one of {}", quoted(options)),
        Kind::Constant { expected_value } => format!("must be {}", quoted(expected_value)),
        Kind::Minimum { limit } => format!("must be at least {}", quoted(limit)),
        Kind::Maximum { limit } => format!("must be at most {}", quoted(limit)),
        Kind::ExclusiveMinimum { limit } => format!("must be more than {}", quoted(limit)),
        Kind::ExclusiveMaximum { limit } => format!("must be less than {}", quoted(limit)),
        Kind::MultipleOf { multiple_of } => {
            format!("must be a multiple of {}", quoted(multiple_of))
        }
        Kind::MinLength { limit } => format!("must have at least {limit} characters"),
        Kind::MaxLength { limit } => format!("must have at most {limit} characters"),
        Kind::MinItems { limit } => format!("must have at least {limit} items"),
        Kind::MaxItems { limit } => format!("must have at most {limit} items"),
        Kind::MinProperties { limit } => format!("must have at least {limit} members"),
        Kind::MaxProperties { limit } => format!("must have at most {limit} members"),
        Kind::AdditionalItems { limit } => format!("must have at most {limit} items"),
        Kind::UnevaluatedItems { .. } => "has items that are not known here".to_owned(),
        Kind::UniqueItems => "must not hold an item twice".to_owned(),
        Kind::Contains => "lacks an item that the schema asks for".to_owned(),
        Kind::Pattern { pattern } => format!("must match the pattern {}", brief(pattern)),
        Kind::PropertyNames { .. } => "has a member whose name is not allowed".to_owned(),
        Kind::Format { format } => format!("must be in format {}", brief(format)),
        Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } => {
            "fits none of the forms that the schema allows".to_owned()
        }
        Kind::OneOfMultipleValid { .. } => {
            "fits several forms of which the schema allows one".to_owned()
        }
        Kind::Not { .. } => "has a form that the schema excludes".to_owned(),
        Kind::FalseSchema => "is not allowed here".to_owned(),
        // Of a foreign enum that grows: what is left is rare, and its own text may show values.
        _ => "does not fit the schema".to_owned(),
    }
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => one.to_string(),
        TypeKind::Multiple(several) => {
            several.iter().map(|one| one.to_string()).collect::<Vec<_>>().join(" or ")
        }
    }
}

fn quoted(of_schema: &Value) -> String {
    brief(&of_schema.to_string())
}

fn brief(text: &str) -> String {
    let mut brief: String = text.chars().take(QUOTE_CHARS).collect();
    if text.chars().nth(QUOTE_CHARS).is_some() {
        brief.push('…');
    }
    brief
}
