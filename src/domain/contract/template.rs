//! Requests with places for values: what a contract writes, parsed once and rendered for each
//! attempt.
//!
//! A placeholder is `{/json/pointer}` of the arguments, `{idempotency_key}`, `{operation_id}`,
//! `{tenant}`, `{environment}` or, in questions about what became of an operation, `{job}` and
//! `{receipt}`. `{{` and `}}` are literal braces. A secret is `${env:NAME}` or `${file:/path}`, in a header, as a query value, or as the leading
//! `scheme://host[:port]` of a URL; `$${` is a dollar before a placeholder.
//!
//! - A body value that is exactly one placeholder keeps its JSON type and every digit; inside a
//!   longer string, in a header and in a URL only strings and numbers have a text.
//! - In a URL a placeholder is one whole path segment or query value, percent-encoded; nothing
//!   that a server or proxy could read as `.`, `..` or an empty segment gets through, not even
//!   behind an encoded slash. Scheme and host never come from arguments.
//! - What is missing drops its body member, array item, header or query pair. A path has no part
//!   that could drop, so there it is an error, and so is a body that would drop as a whole, and a
//!   text that holds the idempotency key or a secret besides: the request would go out without it.
//! - In a request that asks ([`HttpCall`](super::HttpCall), [`Policy`](super::Policy)) nothing drops:
//!   without one of its parts it would ask something else, and the answer would be believed.
//!
//! Errors name places and pointers, never values.

mod body;
mod render;
mod text;
mod url;

use std::fmt;

use thiserror::Error;

use crate::domain::json::Json;
use crate::domain::pointer::Pointer;

pub use body::BodyTemplate;
pub use render::RenderedRequest;
pub use text::TextTemplate;
pub use url::UrlTemplate;

/// A place for a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placeholder {
    /// `{/json/pointer}`: from the arguments.
    Argument(Pointer),
    /// `{idempotency_key}`: the key towards the downstream, the same for every attempt.
    IdempotencyKey,
    /// `{operation_id}`
    OperationId,
    /// `{tenant}`
    Tenant,
    /// `{environment}`
    Environment,
    /// `{job}`: the provider's job.
    Job,
    /// `{receipt}`: the effect's reference.
    Receipt,
}

/// Where a secret is found; the secret itself is nowhere in a contract.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecretRef {
    /// `${env:NAME}`
    Env(String),
    /// `${file:/path}`
    File(String),
}

/// Finds a secret's text; `None` when it is not there.
pub type Secrets<'a> = &'a dyn Fn(&SecretRef) -> Option<String>;

/// The values of one attempt.
#[derive(Clone, Copy)]
pub struct RenderContext<'a> {
    /// The record's arguments.
    pub arguments: &'a Json,
    /// The key towards the downstream.
    pub idempotency_key: Option<&'a str>,
    /// The operation's id.
    pub operation_id: &'a str,
    /// The tenant.
    pub tenant: &'a str,
    /// The environment.
    pub environment: &'a str,
    /// The provider's job, where one is known.
    pub job: Option<&'a str>,
    /// The effect's reference, where one is known.
    pub receipt: Option<&'a str>,
}

/// Why a text is no template.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TemplateSyntax {
    /// `{` without `}`.
    #[error("a '{{' is not closed; a literal brace is written {{{{")]
    Unclosed,
    /// `}` without `{`.
    #[error("a '}}' closes nothing; a literal brace is written }}}}")]
    Unopened,
    /// Neither a pointer nor one of the names.
    #[error(
        "a placeholder is {{/json/pointer}}, {{idempotency_key}}, {{operation_id}}, {{tenant}}, {{environment}}, {{job}} or {{receipt}}"
    )]
    Placeholder,
    /// The root, or no pointer by RFC 6901.
    #[error("a placeholder's pointer must be a JSON Pointer to a member of the arguments")]
    Pointer,
    /// Neither env nor file.
    #[error(
        "a secret is ${{env:NAME}} or ${{file:/absolute/path}}; a literal dollar before a placeholder is written $$"
    )]
    Secret,
    /// A secret where it could be stored or logged.
    #[error(
        "a secret may stand in a header, as a query value or as a URL's leading scheme://host[:port]"
    )]
    SecretPlace,
    /// A header with characters that HTTP or this program does not send.
    #[error("a header's literal text must be visible ASCII and single spaces inside")]
    HeaderText,
    /// What is wrong with a URL.
    #[error("{0}")]
    Url(&'static str),
}

/// Why a request could not be built. It will not be built from the same arguments and secrets
/// later either, and nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("cannot build {place}: {problem}")]
pub struct TemplateError {
    /// The part of the request, such as `url`, `header X-Reference`, `body`.
    pub place: String,
    /// What is wrong there.
    pub problem: TemplateProblem,
}

/// What is wrong in a request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TemplateProblem {
    /// A path segment, or the whole body, needs an argument that is not there.
    #[error("{0} is missing, and this place cannot do without it")]
    Missing(Placeholder),
    /// Something other than a string or a number where a text is built.
    #[error("{0} is neither a string nor a number, and only those have a text")]
    NotText(Placeholder),
    /// A value that would change the path.
    #[error("{0} would change the path: '.', '..', empty parts and control characters are refused")]
    PathSegment(Placeholder),
    /// A value that cannot stand in a header.
    #[error("{0} holds something other than visible ASCII, or nothing")]
    HeaderValue(Placeholder),
    /// A secret that is not there.
    #[error("the secret {0} is not set")]
    SecretMissing(SecretRef),
    /// A secret that cannot stand where the contract puts it.
    #[error(
        "the secret {0} cannot stand here: it is empty or holds control or non-ASCII characters"
    )]
    SecretUnusable(SecretRef),
    /// An address from the deployment that is none.
    #[error("{0} must hold http:// or https://, a host and perhaps a port, and nothing else")]
    Base(SecretRef),
}

impl TemplateProblem {
    /// Whether the arguments are at fault, and not the deployment.
    #[must_use]
    pub fn is_of_the_arguments(&self) -> bool {
        match self {
            Self::Missing(placeholder)
            | Self::NotText(placeholder)
            | Self::PathSegment(placeholder)
            | Self::HeaderValue(placeholder) => placeholder.argument().is_some(),
            Self::SecretMissing(_) | Self::SecretUnusable(_) | Self::Base(_) => false,
        }
    }
}

/// One value of an attempt: a JSON value or a text of our own.
enum Found<'a> {
    Json(&'a Json),
    Text(&'a str),
}

impl Placeholder {
    fn parse(text: &str) -> Result<Self, TemplateSyntax> {
        match text {
            "idempotency_key" => Ok(Self::IdempotencyKey),
            "operation_id" => Ok(Self::OperationId),
            "tenant" => Ok(Self::Tenant),
            "environment" => Ok(Self::Environment),
            "job" => Ok(Self::Job),
            "receipt" => Ok(Self::Receipt),
            pointer if pointer.starts_with('/') => {
                Pointer::parse(pointer).map(Self::Argument).map_err(|_| TemplateSyntax::Pointer)
            }
            _ => Err(TemplateSyntax::Placeholder),
        }
    }

    fn find<'a>(&self, context: &RenderContext<'a>) -> Option<Found<'a>> {
        match self {
            Self::Argument(pointer) => context.arguments.at(pointer).map(Found::Json),
            Self::IdempotencyKey => context.idempotency_key.map(Found::Text),
            Self::OperationId => Some(Found::Text(context.operation_id)),
            Self::Tenant => Some(Found::Text(context.tenant)),
            Self::Environment => Some(Found::Text(context.environment)),
            Self::Job => context.job.map(Found::Text),
            Self::Receipt => context.receipt.map(Found::Text),
        }
    }

    /// The value as a text; `None` when a part may drop because the argument is missing.
    fn text(&self, context: &RenderContext<'_>) -> Result<Option<String>, TemplateProblem> {
        match (self.find(context), self) {
            (Some(Found::Text(text)), _) => Ok(Some(text.to_owned())),
            (Some(Found::Json(Json::String(text))), _) => Ok(Some(text.clone())),
            (Some(Found::Json(Json::Number(number))), _) => Ok(Some(number.as_str().to_owned())),
            (Some(Found::Json(_)), _) => Err(TemplateProblem::NotText(self.clone())),
            (None, Self::Argument(_)) => Ok(None),
            // A key, job or receipt that is not there must never drop out silently: that would send the
            // request without what protects it.
            (None, _) => Err(TemplateProblem::Missing(self.clone())),
        }
    }
}

impl SecretRef {
    fn parse(text: &str) -> Result<Self, TemplateSyntax> {
        let is_name = |name: &str| {
            name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        match text.split_once(':') {
            Some(("env", name)) if is_name(name) => Ok(Self::Env(name.to_owned())),
            Some(("file", path)) if path.starts_with('/') && !path.contains(char::is_control) => {
                Ok(Self::File(path.to_owned()))
            }
            _ => Err(TemplateSyntax::Secret),
        }
    }

    fn resolve(&self, secrets: Secrets<'_>) -> Result<String, TemplateProblem> {
        let text = secrets(self).ok_or_else(|| TemplateProblem::SecretMissing(self.clone()))?;
        // Files end with a line feed, whoever wrote them.
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty()
            || text.trim() != text
            || !text.bytes().all(|b| (0x20..0x7f).contains(&b))
        {
            return Err(TemplateProblem::SecretUnusable(self.clone()));
        }
        Ok(text.to_owned())
    }
}

impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument(pointer) => write!(f, "{{{}}}", pointer.brief()),
            Self::IdempotencyKey => f.write_str("{idempotency_key}"),
            Self::OperationId => f.write_str("{operation_id}"),
            Self::Tenant => f.write_str("{tenant}"),
            Self::Environment => f.write_str("{environment}"),
            Self::Job => f.write_str("{job}"),
            Self::Receipt => f.write_str("{receipt}"),
        }
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "${{env:{name}}}"),
            Self::File(path) => write!(f, "${{file:{path}}}"),
        }
    }
}

impl fmt::Debug for RenderContext<'_> {
    /// Shows no payload and no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenderContext").field("operation_id", &self.operation_id).finish()
    }
}

#[cfg(test)]
mod asking;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
