//! Text with placeholders: pieces, and header values made of them.

use crate::domain::pointer::Pointer;

use super::{Placeholder, RenderContext, SecretRef, Secrets, TemplateProblem, TemplateSyntax};

/// One piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Literal(String),
    Value(Placeholder),
    Secret(SecretRef),
}

/// A text with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextTemplate(Vec<Piece>);

impl TextTemplate {
    /// Reads a header's value.
    ///
    /// # Errors
    /// When the text is no template or could not be sent as a header.
    pub fn header(text: &str) -> Result<Self, TemplateSyntax> {
        let template = Self::parse(text)?;
        let sendable = template.0.iter().all(|piece| match piece {
            Piece::Literal(literal) => literal.bytes().all(|b| (0x20..0x7f).contains(&b)),
            Piece::Value(_) | Piece::Secret(_) => true,
        });
        if sendable && !text.is_empty() && text.trim() == text {
            Ok(template)
        } else {
            Err(TemplateSyntax::HeaderText)
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self, TemplateSyntax> {
        pieces(text).map(Self)
    }

    /// The literal pieces, in order.
    pub fn literals(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Literal(text) => Some(text.as_str()),
            Piece::Value(_) | Piece::Secret(_) => None,
        })
    }

    /// The only piece of a text that has one.
    pub(super) fn single(&self) -> Option<&Piece> {
        if let [piece] = self.0.as_slice() { Some(piece) } else { None }
    }

    /// The placeholders, in order.
    pub fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Value(placeholder) => Some(placeholder),
            Piece::Literal(_) | Piece::Secret(_) => None,
        })
    }

    /// The secrets, in order.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretRef> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Secret(secret) => Some(secret),
            Piece::Literal(_) | Piece::Value(_) => None,
        })
    }

    /// The places in the arguments that the text is made of.
    #[must_use]
    pub fn argument_pointers(&self) -> Vec<&Pointer> {
        self.placeholders()
            .filter_map(|placeholder| match placeholder {
                Placeholder::Argument(pointer) => Some(pointer),
                Placeholder::IdempotencyKey
                | Placeholder::OperationId
                | Placeholder::Tenant
                | Placeholder::Environment
                | Placeholder::Job
                | Placeholder::Receipt => None,
            })
            .collect()
    }

    /// What a missing argument does to this text: it drops out, unless it also holds what the
    /// request must not go out without.
    fn drop_for<T>(&self, missing: &Placeholder) -> Result<Option<T>, TemplateProblem> {
        let precious = |piece: &Piece| match piece {
            Piece::Secret(_) | Piece::Value(Placeholder::IdempotencyKey) => true,
            Piece::Literal(_) | Piece::Value(_) => false,
        };
        if self.0.iter().any(precious) {
            Err(TemplateProblem::Missing(missing.clone()))
        } else {
            Ok(None)
        }
    }

    /// The header's value; `None` when it drops out.
    pub(super) fn render_header(
        &self,
        context: &RenderContext<'_>,
        secrets: Secrets<'_>,
    ) -> Result<Option<String>, TemplateProblem> {
        let mut value = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Literal(text) => value.push_str(text),
                Piece::Secret(secret) => value.push_str(&secret.resolve(secrets)?),
                Piece::Value(placeholder) => {
                    let Some(text) = placeholder.text(context)? else {
                        return self.drop_for(placeholder);
                    };
                    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
                        return Err(TemplateProblem::HeaderValue(placeholder.clone()));
                    }
                    value.push_str(&text);
                }
            }
        }
        Ok(Some(value))
    }

    /// The text inside a body; `None` when it drops out.
    pub(super) fn render_text(
        &self,
        context: &RenderContext<'_>,
    ) -> Result<Option<String>, TemplateProblem> {
        let mut value = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Literal(text) => value.push_str(text),
                Piece::Value(placeholder) => {
                    let Some(text) = placeholder.text(context)? else {
                        return self.drop_for(placeholder);
                    };
                    value.push_str(&text);
                }
                // The reader of bodies lets none in.
                Piece::Secret(secret) => {
                    return Err(TemplateProblem::SecretUnusable(secret.clone()));
                }
            }
        }
        Ok(Some(value))
    }
}

/// Splits a text at its braces.
fn pieces(text: &str) -> Result<Vec<Piece>, TemplateSyntax> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}', '$']) {
        let (before, from) = rest.split_at_checked(at).unwrap_or_default();
        literal.push_str(before);
        let (piece, after) = next_piece(from)?;
        rest = after;
        match piece {
            Piece::Literal(more) => literal.push_str(&more),
            Piece::Value(_) | Piece::Secret(_) => {
                if !literal.is_empty() {
                    pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                }
                pieces.push(piece);
            }
        }
    }
    literal.push_str(rest);
    if !literal.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

/// The piece that begins with a brace or a dollar, and what follows it.
fn next_piece(from: &str) -> Result<(Piece, &str), TemplateSyntax> {
    let literal = |text: &str| Piece::Literal(text.to_owned());
    let until_brace = |inside: &'_ str| inside.find('}').ok_or(TemplateSyntax::Unclosed);
    if let Some(after) = from.strip_prefix("{{") {
        return Ok((literal("{"), after));
    }
    if let Some(after) = from.strip_prefix("}}") {
        return Ok((literal("}"), after));
    }
    if let Some(inside) = from.strip_prefix('{') {
        let (name, after) = inside.split_at_checked(until_brace(inside)?).unwrap_or_default();
        let after = after.strip_prefix('}').unwrap_or_default();
        return Ok((Piece::Value(Placeholder::parse(name)?), after));
    }
    if let Some(after) = from.strip_prefix("$$")
        && after.starts_with('{')
    {
        return Ok((literal("$"), after));
    }
    match from.strip_prefix('$') {
        Some(after) if after.starts_with("{{") => Ok((literal("$"), after)),
        Some(after) => match after.strip_prefix('{') {
            Some(inside) => {
                let (name, after) =
                    inside.split_at_checked(until_brace(inside)?).unwrap_or_default();
                let after = after.strip_prefix('}').unwrap_or_default();
                Ok((Piece::Secret(SecretRef::parse(name)?), after))
            }
            None => Ok((literal("$"), after)),
        },
        None => Err(TemplateSyntax::Unopened),
    }
}
