//! The YAML that contracts are written in: one document that says the same to every reader.
//!
//! What YAML 1.1 and 1.2 read in two ways (`no`, `012`, `1_000`), what hides text from a reviewer
//! (anchors, aliases, merges, tags) and what one reader drops (a key twice) is refused with its
//! line. Numbers keep their text.

use std::ops::ControlFlow;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};

use crate::domain::json::{Json, Number};

use super::ContractTextError;

/// Deepest nesting. A schema in a contract needs some twenty levels.
const MAX_DEPTH: usize = 64;

/// Words that are booleans to YAML 1.1 and texts to YAML 1.2.
const TWO_FACED: [&str; 4] = ["yes", "no", "on", "off"];

/// Reads one document.
///
/// # Errors
/// When the text is no YAML, or YAML that two readers could understand in two ways; the line.
pub(super) fn read(text: &str) -> Result<Json, ContractTextError> {
    let mut reader = Reader { parser: Parser::new_from_str(text), line: 1 };
    reader.expect(|event| matches!(event, Event::StreamStart))?;
    if !matches!(reader.next()?, Event::DocumentStart(_)) {
        return Err(reader.refuse("the file holds no document"));
    }
    let first = reader.next()?;
    let document = reader.value(first, 0)?;
    reader.expect(|event| matches!(event, Event::DocumentEnd))?;
    match reader.next()? {
        Event::StreamEnd => Ok(document),
        _ => Err(reader.refuse("a second document begins; a file holds one contract")),
    }
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    /// Where the last event began.
    line: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<Event<'a>, ContractTextError> {
        match self.parser.next_event() {
            Some(Ok((event, Span { start, .. }))) => {
                self.line = start.line();
                Ok(event)
            }
            Some(Err(error)) => {
                self.line = error.marker().line();
                Err(self.refuse(error.info()))
            }
            None => Err(self.refuse("the text ends too early")),
        }
    }

    fn expect(&mut self, fits: impl FnOnce(&Event<'a>) -> bool) -> Result<(), ContractTextError> {
        let event = self.next()?;
        if fits(&event) { Ok(()) } else { Err(self.refuse("not the YAML of a contract")) }
    }

    fn refuse(&self, message: impl Into<String>) -> ContractTextError {
        ContractTextError::Yaml { line: self.line, message: message.into() }
    }

    /// The value that begins with `event`; `depth` counts the collections around it.
    fn value(&mut self, event: Event<'a>, depth: usize) -> Result<Json, ContractTextError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.plain_node(anchor, tag.as_deref())?;
                self.scalar(&text, style)
            }
            Event::SequenceStart(anchor, tag) => {
                self.plain_node(anchor, tag.as_deref())?;
                self.sequence(self.deeper(depth)?)
            }
            Event::MappingStart(anchor, tag) => {
                self.plain_node(anchor, tag.as_deref())?;
                self.mapping(self.deeper(depth)?)
            }
            Event::Alias(_) => Err(self.refuse("aliases are refused; write the value out")),
            _ => Err(self.refuse("the file holds no contract")),
        }
    }

    fn plain_node(&self, anchor: usize, tag: Option<&Tag>) -> Result<(), ContractTextError> {
        match (anchor, tag) {
            (0, None) => Ok(()),
            (_, Some(_)) => {
                Err(self.refuse("tags are refused; quote a text, leave a number plain"))
            }
            (_, None) => Err(self.refuse("anchors are refused; write the value out")),
        }
    }

    fn deeper(&self, depth: usize) -> Result<usize, ContractTextError> {
        if depth < MAX_DEPTH {
            Ok(depth + 1)
        } else {
            Err(self.refuse(format!("nesting is deeper than {MAX_DEPTH}")))
        }
    }

    fn sequence(&mut self, depth: usize) -> Result<Json, ContractTextError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(Json::Array(items)),
                event => items.push(self.value(event, depth)?),
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Json, ContractTextError> {
        let mut members: Vec<(String, Json)> = Vec::new();
        let mut names = std::collections::BTreeSet::new();
        loop {
            let event = match self.next()? {
                Event::MappingEnd => return Ok(Json::Object(members)),
                event => event,
            };
            let name = self.name(event)?;
            if !names.insert(name.clone()) {
                return Err(self.refuse("this key stands twice in its mapping"));
            }
            let event = self.next()?;
            members.push((name, self.value(event, depth)?));
        }
    }

    fn name(&mut self, event: Event<'a>) -> Result<String, ContractTextError> {
        if matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if text == "<<") {
            return Err(self.refuse("merge keys are refused; write the members out"));
        }
        if !matches!(event, Event::Scalar(..) | Event::Alias(_)) {
            return Err(self.refuse("a key is a text"));
        }
        match self.value(event, MAX_DEPTH)? {
            Json::String(name) => Ok(name),
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_) => {
                Err(self.refuse("a key is a text; put quotes around a number or a word like true"))
            }
        }
    }

    fn scalar(&self, text: &str, style: ScalarStyle) -> Result<Json, ContractTextError> {
        if text.contains('\0') {
            return Err(self.refuse("U+0000 cannot be stored"));
        }
        if style != ScalarStyle::Plain {
            return Ok(Json::String(text.to_owned()));
        }
        match plain(text) {
            ControlFlow::Continue(value) => Ok(value),
            ControlFlow::Break(reason) => Err(self.refuse(reason)),
        }
    }
}

/// What a word without quotes is by YAML 1.2's core schema, or why it is refused.
fn plain(text: &str) -> ControlFlow<&'static str, Json> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return ControlFlow::Continue(Json::Null),
        "true" | "True" | "TRUE" => return ControlFlow::Continue(Json::Bool(true)),
        "false" | "False" | "FALSE" => return ControlFlow::Continue(Json::Bool(false)),
        _ => {}
    }
    if let Some(number) = Number::new(text) {
        return ControlFlow::Continue(Json::Number(number));
    }
    if TWO_FACED.iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return ControlFlow::Break(
            "yes, no, on and off are texts to some readers and booleans to others; write true or false, or put quotes around it",
        );
    }
    if is_other_number(text) {
        return ControlFlow::Break(
            "this is a number to some readers only; write it as JSON does, or put quotes around it",
        );
    }
    ControlFlow::Continue(Json::String(text.to_owned()))
}

/// Numbers of YAML 1.1 or 1.2 that JSON does not have: `012`, `0x1f`, `0o17`, `1_000`, `+1`,
/// `1.`, `.5`, `.inf`, `.nan`.
fn is_other_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let lower = unsigned.to_ascii_lowercase();
    let based = [("0x", 16), ("0o", 8), ("0b", 2)].iter().any(|(prefix, base)| {
        lower.strip_prefix(prefix).is_some_and(|digits| {
            !digits.is_empty() && digits.chars().all(|c| c == '_' || c.is_digit(*base))
        })
    });
    let (mantissa, exponent) = lower.split_once('e').unwrap_or((&lower, "0"));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let decimal = mantissa.matches('.').count() <= 1
        && digits(&mantissa.replace('.', ""))
        && mantissa.bytes().any(|b| b.is_ascii_digit())
        && !mantissa.starts_with('_')
        && !exponent.is_empty()
        && digits(exponent);
    based || decimal || matches!(lower.as_str(), ".inf" | ".nan")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(yaml: &str) -> Result<String, (usize, String)> {
        read(yaml).map(|json| json.to_text()).map_err(|error| match error {
            ContractTextError::Yaml { line, message } => (line, message),
            other => panic!("{other}"),
        })
    }

    #[test]
    fn numbers_keep_their_text_and_words_their_meaning() {
        let check = |yaml: &str, json: &str| {
            assert_eq!(text_of(yaml).as_deref(), Ok(json), "{yaml:?}");
        };
        check("a: 1.0", r#"{"a":1.0}"#);
        check("a: 9007199254740993", r#"{"a":9007199254740993}"#);
        check("a: 1e400", r#"{"a":1e400}"#);
        check("a: -0", r#"{"a":-0}"#);
        check("a: '1.0'", r#"{"a":"1.0"}"#);
        check("a: \"no\"", r#"{"a":"no"}"#);
        check("a: 2026-08-19", r#"{"a":"2026-08-19"}"#);
        check("a: 1.2.3", r#"{"a":"1.2.3"}"#);
        check("a: 10s", r#"{"a":"10s"}"#);
        check("a: 5e", r#"{"a":"5e"}"#);
        check("a: 0x", r#"{"a":"0x"}"#);
        check("a: _1", r#"{"a":"_1"}"#);
        check("a: [true, FALSE, ~, null, y, n]", r#"{"a":[true,false,null,null,"y","n"]}"#);
        check("a:", r#"{"a":null}"#);
        check("a: |\n  two\n  lines\n", r#"{"a":"two\nlines\n"}"#);
        check("a: >-\n  one\n  line\n", r#"{"a":"one line"}"#);
        check("\"a\": {\"b\": [1, 2]}", r#"{"a":{"b":[1,2]}}"#);
        check("--- \na: 1\n...\n", r#"{"a":1}"#);
        check("/a/b: x # comment", r#"{"/a/b":"x"}"#);
        check("a: größe ✓", r#"{"a":"größe ✓"}"#);
        check("a: 1\r\nb: x\r\n", r#"{"a":1,"b":"x"}"#);
        check("\u{feff}a: 1", r#"{"a":1}"#);
        check("%YAML 1.1\n---\na: 1", r#"{"a":1}"#);
    }

    #[test]
    fn what_two_readers_read_in_two_ways_is_refused_with_its_line() {
        let check = |yaml: &str, line: usize, part: &str| {
            let (found, message) = text_of(yaml).expect_err(yaml);
            assert!(message.contains(part), "{yaml:?}: {message}");
            assert_eq!(found, line, "{yaml:?}");
        };
        for word in ["no", "NO", "Yes", "on", "off"] {
            check(&format!("x: 1\na: {word}"), 2, "booleans to others");
        }
        check("on: 1", 1, "booleans to others");
        for number in [
            "012", "0o17", "0x1F", "0b1", "1_000", "+1", "1.", ".5", ".inf", "-.INF", ".nan",
            "01e1",
        ] {
            check(&format!("x: 1\na: {number}"), 2, "a number to some readers only");
        }
        check("a: 1\nb: 2\na: 3", 3, "stands twice");
        check("a: 1\n\"a\": 3", 2, "stands twice");
        check("a: {b: 1, b: 1}", 1, "stands twice");
        check("a: &x 1\nb: 2", 1, "anchors are refused");
        check("a: &x {b: 1}\nc: *x", 1, "anchors are refused");
        check("a:\n  <<: {b: 1}", 2, "merge keys are refused");
        check("a: !!str 1", 1, "tags are refused");
        check("a: !custom {}", 1, "tags are refused");
        check("1: a", 1, "a key is a text");
        check("true: a", 1, "a key is a text");
        check("~: a", 1, "a key is a text");
        check("? [a]\n: b", 1, "a key is a text");
        check("a: \"x\\0y\"", 1, "U+0000");
        check("a: 1\n---\nb: 2", 2, "a second document");
        check("", 1, "no document");
        check("# nothing\n", 2, "no document");
    }

    #[test]
    fn broken_yaml_and_deep_nesting_are_refused() {
        for yaml in ["a: [1", "a: b: c", "a:\n\t- 1", "a: 'x", "{", "*x", "a: \"\\ud800\""] {
            assert!(read(yaml).is_err(), "{yaml:?}");
        }
        let nested = |depth: usize| format!("a: {}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(&nested(MAX_DEPTH - 1)).is_ok());
        let (_, message) = text_of(&nested(MAX_DEPTH)).expect_err("too deep");
        assert!(message.contains("deeper than 64"), "{message}");
        assert!(read(&nested(50_000)).is_err());
    }
}
