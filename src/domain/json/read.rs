//! The strict reader: recursive descent by RFC 8259 over bytes, with the place of a fault.

use super::{Json, JsonError, JsonLimits, JsonProblem, Number, Pointer};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads one document.
///
/// # Errors
/// When the text is not exactly one JSON document within `limits`, or holds something oncebox
/// refuses ([`JsonProblem`]). The caller may conclude that the same bytes will never be accepted
/// under the same limits.
pub fn parse(bytes: &[u8], limits: &JsonLimits) -> Result<Json, JsonError> {
    let refuse = |offset, problem| JsonError { pointer: Pointer::root(), offset, problem };
    if bytes.len() > limits.max_bytes {
        return Err(refuse(limits.max_bytes, JsonProblem::TooLarge { limit: limits.max_bytes }));
    }
    if bytes.starts_with(BYTE_ORDER_MARK) {
        return Err(refuse(0, JsonProblem::ByteOrderMark));
    }
    Reader::new(bytes, limits).document().map_err(|fault| {
        let tokens: Vec<String> = fault.inside_out.into_iter().rev().collect();
        JsonError { pointer: Pointer::from(tokens), offset: fault.offset, problem: fault.problem }
    })
}

/// A problem on its way out of the recursion: every level adds its name, so that reading a good
/// document pays nothing for the pointer.
struct Fault {
    inside_out: Vec<String>,
    offset: usize,
    problem: JsonProblem,
}

impl Fault {
    fn under(mut self, token: impl Into<String>) -> Self {
        self.inside_out.push(token.into());
        self
    }
}

struct Reader<'a> {
    /// As much of the input as is UTF-8.
    text: &'a str,
    /// Whether `text` ends only because the next bytes are not UTF-8.
    cut_short: bool,
    at: usize,
    max_depth: usize,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], limits: &JsonLimits) -> Self {
        let max_depth = limits.max_depth.min(JsonLimits::DEEPEST);
        let (text, cut_short) = match std::str::from_utf8(bytes) {
            Ok(text) => (text, false),
            Err(error) => {
                let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
                (std::str::from_utf8(valid).unwrap_or_default(), true)
            }
        };
        Self { text, cut_short, at: 0, max_depth }
    }

    fn document(mut self) -> Result<Json, Fault> {
        let value = self.value(0)?;
        self.skip_space();
        match self.peek() {
            None if !self.cut_short => Ok(value),
            None => Err(self.fault(JsonProblem::InvalidUtf8)),
            Some(_) => Err(self.fault(JsonProblem::TrailingData)),
        }
    }

    /// `depth` counts the arrays and objects around this value.
    fn value(&mut self, depth: usize) -> Result<Json, Fault> {
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(self.deeper(depth)?),
            Some(b'[') => self.array(self.deeper(depth)?),
            Some(b'"') => self.string().map(Json::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'n') => self.word("null", Json::Null),
            Some(_) | None => Err(self.expected("a value")),
        }
    }

    fn deeper(&self, depth: usize) -> Result<usize, Fault> {
        if depth < self.max_depth {
            Ok(depth + 1)
        } else {
            Err(self.fault(JsonProblem::TooDeep { limit: self.max_depth }))
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, Fault> {
        let mut members = Vec::new();
        self.at += 1;
        self.skip_space();
        if self.skip(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.expected("a member name in double quotes"));
            }
            let name = self.string()?;
            self.skip_space();
            if !self.skip(b':') {
                return Err(self.expected("a colon").under(name));
            }
            match self.value(depth) {
                Ok(value) => members.push((name, value)),
                Err(fault) => return Err(fault.under(name)),
            }
            self.skip_space();
            if self.skip(b'}') {
                break;
            }
            if !self.skip(b',') {
                return Err(self.expected("a comma or '}'"));
            }
        }
        match name_twice(&members) {
            Some(name) => Err(self.fault(JsonProblem::DuplicateName).under(name)),
            None => Ok(Json::Object(members)),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Json, Fault> {
        let mut items = Vec::new();
        self.at += 1;
        self.skip_space();
        if self.skip(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            let item = self.value(depth).map_err(|fault| fault.under(items.len().to_string()))?;
            items.push(item);
            self.skip_space();
            if self.skip(b']') {
                return Ok(Json::Array(items));
            }
            if !self.skip(b',') {
                return Err(self.expected("a comma or ']'"));
            }
        }
    }

    fn number(&mut self) -> Result<Json, Fault> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        match number_length(rest.as_bytes()) {
            Ok(length) => {
                self.at += length;
                Ok(Json::Number(Number(rest.get(..length).unwrap_or_default().to_owned())))
            }
            Err(expected) => Err(self.expected(expected)),
        }
    }

    fn word(&mut self, word: &str, value: Json) -> Result<Json, Fault> {
        if !self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            return Err(self.expected("a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn string(&mut self) -> Result<String, Fault> {
        self.at += 1;
        let mut text = String::new();
        loop {
            text.push_str(self.unescaped_run());
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                Some(0) => return Err(self.fault(JsonProblem::Nul)),
                Some(_) => {
                    return Err(self.expected("control characters in a string to be escaped"));
                }
                None => return Err(self.expected("the closing quote of a string")),
            }
        }
    }

    /// Skips to the next byte of a string that means something; it is ASCII, so the run ends
    /// between characters.
    fn unescaped_run(&mut self) -> &'a str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let length =
            rest.bytes().position(|b| matches!(b, b'"' | b'\\' | 0..0x20)).unwrap_or(rest.len());
        self.at += length;
        rest.get(..length).unwrap_or_default()
    }

    fn escape(&mut self) -> Result<char, Fault> {
        self.at += 1;
        let plain = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            Some(_) | None => return Err(self.expected("an escape that JSON has")),
        };
        self.at += 1;
        Ok(plain)
    }

    fn unicode_escape(&mut self) -> Result<char, Fault> {
        let first = self.code_unit()?;
        let code_point = match first {
            0 => return Err(self.fault(JsonProblem::Nul)),
            0xd800..0xdc00 if self.skip(b'\\') && self.peek() == Some(b'u') => match self
                .code_unit()?
            {
                second @ 0xdc00..0xe000 => 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00),
                _ => return Err(self.fault(JsonProblem::LoneSurrogate)),
            },
            other => other,
        };
        // What is left that is no character is half a pair.
        char::from_u32(code_point).ok_or_else(|| self.fault(JsonProblem::LoneSurrogate))
    }

    /// `u` and four hexadecimal digits.
    fn code_unit(&mut self) -> Result<u32, Fault> {
        self.at += 1;
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            unit = unit * 16
                + digit.ok_or_else(|| self.expected("four hexadecimal digits after \\u"))?;
            self.at += 1;
        }
        Ok(unit)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn expected(&self, expected: &'static str) -> Fault {
        let at_bad_bytes = self.cut_short && self.at == self.text.len();
        self.fault(if at_bad_bytes {
            JsonProblem::InvalidUtf8
        } else {
            JsonProblem::Syntax { expected }
        })
    }

    fn fault(&self, problem: JsonProblem) -> Fault {
        Fault { inside_out: Vec::new(), offset: self.at, problem }
    }
}

/// The length of the number that `bytes` begin with, or what the grammar misses in it.
pub(super) fn number_length(bytes: &[u8]) -> Result<usize, &'static str> {
    let digits_from =
        |start: usize| bytes.iter().skip(start).take_while(|b| b.is_ascii_digit()).count();
    let mut end = usize::from(bytes.first() == Some(&b'-'));
    match (bytes.get(end), digits_from(end)) {
        (_, 0) => return Err("a digit"),
        (Some(b'0'), 2..) => return Err("a number without leading zeros"),
        (_, digits) => end += digits,
    }
    if bytes.get(end) == Some(&b'.') {
        end += 1 + digits_from(end + 1);
        if bytes.get(end - 1) == Some(&b'.') {
            return Err("a digit after the decimal point");
        }
    }
    if let Some(b'e' | b'E') = bytes.get(end) {
        let start = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        end = start + digits_from(start);
        if end == start {
            return Err("a digit in the exponent");
        }
    }
    Ok(end)
}

/// A name that stands twice. Sorting costs n log n whatever the names are, where a hash table
/// would have to be safe against names chosen to collide.
fn name_twice(members: &[(String, Json)]) -> Option<&str> {
    let mut names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.array_windows().find(|[a, b]| a == b).map(|[name, _]| *name)
}
