//! Addresses with placeholders.

use std::fmt::Write as _;

use super::text::{Piece, TextTemplate};
use super::{Placeholder, RenderContext, SecretRef, Secrets, TemplateProblem, TemplateSyntax};

/// An `http` or `https` address with placeholders in its path and query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlTemplate {
    base: Base,
    /// Segments, each after its slash.
    path: Vec<Part>,
    query: Vec<(String, Part)>,
}

/// `scheme://host[:port]`
#[derive(Clone, Debug, PartialEq, Eq)]
enum Base {
    Literal(String),
    Secret(SecretRef),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Value(Placeholder),
    Secret(SecretRef),
}

impl UrlTemplate {
    /// Reads an address.
    ///
    /// # Errors
    /// When it is no address that this program would send to.
    pub fn parse(text: &str) -> Result<Self, TemplateSyntax> {
        let (address, query) = match split_outside_braces(text, '?') {
            Some((address, query)) => (address, Some(query)),
            None => (text, None),
        };
        let (base, path) = split_base(address)?;
        let segments = path.strip_prefix('/').map_or(Ok(Vec::new()), |path| {
            split_all_outside_braces(path, '/').into_iter().map(segment).collect()
        })?;
        check_empty_segments(&segments)?;
        let query = query.map_or(Ok(Vec::new()), |query| {
            split_all_outside_braces(query, '&').into_iter().map(pair).collect()
        })?;
        Ok(Self { base, path: segments, query })
    }

    /// The placeholders, in order.
    pub fn placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.parts().filter_map(|part| match part {
            Part::Value(placeholder) => Some(placeholder),
            Part::Literal(_) | Part::Secret(_) => None,
        })
    }

    /// The placeholders in the path, which must never be missing.
    pub fn path_placeholders(&self) -> impl Iterator<Item = &Placeholder> {
        self.path.iter().filter_map(|part| match part {
            Part::Value(placeholder) => Some(placeholder),
            Part::Literal(_) | Part::Secret(_) => None,
        })
    }

    /// The secrets, the address of the deployment among them.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretRef> {
        let base = match &self.base {
            Base::Secret(secret) => Some(secret),
            Base::Literal(_) => None,
        };
        base.into_iter().chain(self.parts().filter_map(|part| match part {
            Part::Secret(secret) => Some(secret),
            Part::Literal(_) | Part::Value(_) => None,
        }))
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.path.iter().chain(self.query.iter().map(|(_, part)| part))
    }

    /// The `scheme://host[:port]` when the contract itself names it.
    #[must_use]
    pub fn literal_base(&self) -> Option<&str> {
        match &self.base {
            Base::Literal(base) => Some(base),
            Base::Secret(_) => None,
        }
    }

    /// The address as a person reads it: placeholders and secrets by their names.
    #[must_use]
    pub fn shown(&self) -> String {
        let mut text = match &self.base {
            Base::Literal(base) => base.clone(),
            Base::Secret(secret) => secret.to_string(),
        };
        for part in &self.path {
            text.push('/');
            text.push_str(&part.shown());
        }
        for (number, (name, part)) in self.query.iter().enumerate() {
            text.push(if number == 0 { '?' } else { '&' });
            text.push_str(&format!("{name}={}", part.shown()));
        }
        text
    }

    pub(super) fn render(
        &self,
        context: &RenderContext<'_>,
        secrets: Secrets<'_>,
    ) -> Result<String, TemplateProblem> {
        let mut url = match &self.base {
            Base::Literal(base) => base.clone(),
            Base::Secret(secret) => {
                let text = secret.resolve(secrets)?;
                let base = text.strip_suffix('/').unwrap_or(&text);
                check_base(base).map_err(|_| TemplateProblem::Base(secret.clone()))?;
                base.to_owned()
            }
        };
        if self.path.is_empty() {
            url.push('/');
        }
        for part in &self.path {
            url.push('/');
            url.push_str(&part.render_segment(context)?);
        }
        let mut separator = '?';
        for (name, part) in &self.query {
            if let Some(value) = part.render_query(context, secrets)? {
                url.extend([separator]);
                url.push_str(name);
                url.push('=');
                url.push_str(&value);
                separator = '&';
            }
        }
        Ok(url)
    }
}

impl Part {
    fn shown(&self) -> String {
        match self {
            Self::Literal(text) => text.clone(),
            Self::Value(placeholder) => placeholder.to_string(),
            Self::Secret(secret) => secret.to_string(),
        }
    }

    fn render_segment(&self, context: &RenderContext<'_>) -> Result<String, TemplateProblem> {
        match self {
            Self::Literal(text) => Ok(text.clone()),
            // The reader of paths lets none in.
            Self::Secret(secret) => Err(TemplateProblem::SecretUnusable(secret.clone())),
            Self::Value(placeholder) => {
                let text = placeholder
                    .text(context)?
                    .ok_or_else(|| TemplateProblem::Missing(placeholder.clone()))?;
                if is_one_segment(&text) {
                    Ok(percent_encode(&text))
                } else {
                    Err(TemplateProblem::PathSegment(placeholder.clone()))
                }
            }
        }
    }

    fn render_query(
        &self,
        context: &RenderContext<'_>,
        secrets: Secrets<'_>,
    ) -> Result<Option<String>, TemplateProblem> {
        match self {
            Self::Literal(text) => Ok(Some(text.clone())),
            Self::Secret(secret) => secret.resolve(secrets).map(|s| Some(percent_encode(&s))),
            Self::Value(placeholder) => {
                Ok(placeholder.text(context)?.map(|text| percent_encode(&text)))
            }
        }
    }
}

/// Whether a value stays one segment even where a proxy decodes slashes before it looks at dots.
fn is_one_segment(text: &str) -> bool {
    !text.contains(char::is_control)
        && text.split(['/', '\\']).all(|part| !matches!(part, "" | "." | ".."))
}

/// Everything but RFC 3986's unreserved characters.
fn percent_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            write!(encoded, "%{byte:02X}").unwrap_or_default();
        }
    }
    encoded
}

/// The base, and the path with its slash.
fn split_base(address: &str) -> Result<(Base, &str), TemplateSyntax> {
    if let Some(inside) = address.strip_prefix("${") {
        let (name, path) = inside.split_once('}').ok_or(TemplateSyntax::Unclosed)?;
        if !path.is_empty() && !path.starts_with('/') {
            return Err(TemplateSyntax::Url(
                "after the leading secret a URL goes on with its path, beginning with '/'",
            ));
        }
        return Ok((Base::Secret(SecretRef::parse(name)?), path));
    }
    let after_scheme = address.find("://").map_or(0, |at| at + 3);
    let slash = address.get(after_scheme..).and_then(|rest| rest.find('/'));
    let end = slash.map_or(address.len(), |at| after_scheme + at);
    let (base, path) = address.split_at_checked(end).unwrap_or_default();
    check_base(base)?;
    Ok((Base::Literal(base.to_owned()), path))
}

/// `http` or `https`, a host without user information, perhaps a port.
fn check_base(base: &str) -> Result<(), TemplateSyntax> {
    let bad = Err(TemplateSyntax::Url(
        "a URL begins with http:// or https:// and a host without placeholders or user name, or with ${env:NAME} for scheme, host and port",
    ));
    let Some(authority) = ["http://", "https://"].iter().find_map(|s| base.strip_prefix(s)) else {
        return bad;
    };
    let (host, port) = split_port(authority);
    let port_good = port.is_none_or(|port| {
        port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|p| p > 0)
    });
    let name_good = !host.is_empty()
        && !host.starts_with(['.', '-'])
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    let v6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let v6_good = v6.is_some_and(|v6| v6.parse::<core::net::Ipv6Addr>().is_ok());
    if port_good && (name_good || v6_good) { Ok(()) } else { bad }
}

fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

/// One path segment: literal, or a placeholder and nothing else.
fn segment(text: &str) -> Result<Part, TemplateSyntax> {
    match part(text)? {
        Part::Secret(_) => Err(TemplateSyntax::SecretPlace),
        Part::Literal(literal) if is_dots(&literal) => {
            Err(TemplateSyntax::Url("a URL's path has no '.' or '..' segments, encoded or not"))
        }
        part @ (Part::Literal(_) | Part::Value(_)) => Ok(part),
    }
}

fn is_dots(literal: &str) -> bool {
    matches!(literal.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
}

/// Only the last segment may be empty: a path that ends with a slash.
fn check_empty_segments(segments: &[Part]) -> Result<(), TemplateSyntax> {
    let is_empty = |part: &Part| matches!(part, Part::Literal(literal) if literal.is_empty());
    let before_last = segments.split_last().map_or(&[][..], |(_, before)| before);
    if before_last.iter().any(is_empty) {
        return Err(TemplateSyntax::Url("a URL's path has no empty segments ('//')"));
    }
    Ok(())
}

fn pair(text: &str) -> Result<(String, Part), TemplateSyntax> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    match part(name)? {
        Part::Literal(name) if !name.is_empty() => Ok((name, part(value)?)),
        Part::Literal(_) | Part::Value(_) | Part::Secret(_) => {
            Err(TemplateSyntax::Url("a query is name=value pairs with literal names"))
        }
    }
}

fn part(text: &str) -> Result<Part, TemplateSyntax> {
    let template = TextTemplate::parse(text)?;
    match template.single() {
        Some(Piece::Value(placeholder)) => Ok(Part::Value(placeholder.clone())),
        Some(Piece::Secret(secret)) => Ok(Part::Secret(secret.clone())),
        Some(Piece::Literal(literal)) if is_url_text(literal) => Ok(Part::Literal(literal.clone())),
        Some(Piece::Literal(_)) => Err(TemplateSyntax::Url(
            "a URL's literal text is letters, digits, -._~!$'()*+,;:@= and percent escapes; no fragment",
        )),
        None => Err(TemplateSyntax::Url(
            "in a URL a placeholder is one whole path segment or one whole query value",
        )),
    }
}

/// RFC 3986's `pchar` without `&`, escapes complete.
fn is_url_text(text: &str) -> bool {
    let bytes = text.as_bytes();
    let escape_complete = |at: usize| {
        bytes.get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit))
    };
    bytes.iter().enumerate().all(|(at, byte)| match byte {
        b'%' => escape_complete(at),
        b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'\'' | b'(' | b')' | b'*' | b'+' | b','
        | b';' | b':' | b'@' | b'=' => true,
        other => other.is_ascii_alphanumeric(),
    })
}

/// The first `separator` that is in no placeholder: pointers hold slashes, and may hold anything.
fn split_outside_braces(text: &str, separator: char) -> Option<(&str, &str)> {
    let mut inside = false;
    for (at, character) in text.char_indices() {
        match character {
            '{' => inside = true,
            '}' => inside = false,
            other if other == separator && !inside => {
                let (before, after) = text.split_at_checked(at)?;
                return Some((before, after.strip_prefix(separator)?));
            }
            _ => {}
        }
    }
    None
}

fn split_all_outside_braces(text: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((part, after)) = split_outside_braces(rest, separator) {
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    parts
}
