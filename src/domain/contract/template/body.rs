//! JSON bodies with placeholders.

use crate::domain::json::Json;
use crate::domain::pointer::Pointer;

use super::text::{Piece, TextTemplate};
use super::{Found, Placeholder, RenderContext, TemplateProblem, TemplateSyntax};

/// A JSON body with placeholders in its strings. Names of members are literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyTemplate(Node);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Literal(Json),
    Value(Placeholder),
    Text(TextTemplate),
    Array(Vec<Node>),
    Object(Vec<(String, Node)>),
}

impl BodyTemplate {
    /// Reads a body.
    ///
    /// # Errors
    /// Every string that is no template, with its place in the body.
    pub fn parse(body: &Json) -> Result<Self, Vec<(Pointer, TemplateSyntax)>> {
        let mut faults = Vec::new();
        let node = node(body, &Pointer::root(), &mut faults);
        if faults.is_empty() { Ok(Self(node)) } else { Err(faults) }
    }

    /// The placeholders, in order.
    #[must_use]
    pub fn placeholders(&self) -> Vec<&Placeholder> {
        let mut found = Vec::new();
        self.0.collect(&mut found);
        found
    }

    /// The body's text.
    pub(super) fn render(&self, context: &RenderContext<'_>) -> Result<String, TemplateProblem> {
        match (self.0.render(context)?, &self.0) {
            (Some(body), _) => Ok(body.to_text()),
            (None, Node::Value(placeholder)) => Err(TemplateProblem::Missing(placeholder.clone())),
            (None, node) => {
                let mut found = Vec::new();
                node.collect(&mut found);
                let first = found.first().map_or(Placeholder::OperationId, |p| (*p).clone());
                Err(TemplateProblem::Missing(first))
            }
        }
    }
}

fn node(body: &Json, place: &Pointer, faults: &mut Vec<(Pointer, TemplateSyntax)>) -> Node {
    match body {
        Json::Null | Json::Bool(_) | Json::Number(_) => Node::Literal(body.clone()),
        Json::String(text) => string_node(text).unwrap_or_else(|fault| {
            faults.push((place.clone(), fault));
            Node::Literal(Json::Null)
        }),
        Json::Array(items) => Node::Array(
            items
                .iter()
                .enumerate()
                .map(|(index, item)| node(item, &place.child(index.to_string()), faults))
                .collect(),
        ),
        Json::Object(members) => Node::Object(
            members
                .iter()
                .map(|(name, value)| (name.clone(), node(value, &place.child(name), faults)))
                .collect(),
        ),
    }
}

fn string_node(text: &str) -> Result<Node, TemplateSyntax> {
    let template = TextTemplate::parse(text)?;
    if template.secrets().next().is_some() {
        return Err(TemplateSyntax::SecretPlace);
    }
    Ok(match template.single() {
        Some(Piece::Value(placeholder)) => Node::Value(placeholder.clone()),
        Some(Piece::Literal(literal)) => Node::Literal(Json::String(literal.clone())),
        Some(Piece::Secret(_)) | None => Node::Text(template),
    })
}

impl Node {
    /// The value; `None` when it drops out.
    fn render(&self, context: &RenderContext<'_>) -> Result<Option<Json>, TemplateProblem> {
        Ok(match self {
            Self::Literal(value) => Some(value.clone()),
            Self::Text(text) => text.render_text(context)?.map(Json::String),
            Self::Value(placeholder) => match (placeholder.find(context), placeholder) {
                (Some(Found::Json(value)), _) => Some(value.clone()),
                (Some(Found::Text(text)), _) => Some(Json::String(text.to_owned())),
                (None, Placeholder::Argument(_)) => None,
                (None, _) => return Err(TemplateProblem::Missing(placeholder.clone())),
            },
            Self::Array(items) => {
                let mut rendered = Vec::with_capacity(items.len());
                for item in items {
                    rendered.extend(item.render(context)?);
                }
                Some(Json::Array(rendered))
            }
            Self::Object(members) => {
                let mut rendered = Vec::with_capacity(members.len());
                for (name, value) in members {
                    rendered.extend(value.render(context)?.map(|value| (name.clone(), value)));
                }
                Some(Json::Object(rendered))
            }
        })
    }

    fn collect<'a>(&'a self, found: &mut Vec<&'a Placeholder>) {
        match self {
            Self::Literal(_) => {}
            Self::Value(placeholder) => found.push(placeholder),
            Self::Text(text) => found.extend(text.placeholders()),
            Self::Array(items) => items.iter().for_each(|item| item.collect(found)),
            Self::Object(members) => members.iter().for_each(|(_, value)| value.collect(found)),
        }
    }
}
