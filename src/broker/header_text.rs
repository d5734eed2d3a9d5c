//! Foreign message properties as text that can always be stored.
//!
//! Parking a message must not fail on the very content that made it strange: bytes that are not
//! UTF-8 become hex, control characters (NUL among them) are escaped, depth and size are bounded.

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldTable, ShortString},
};
use serde_json::{Map, Value, json};

/// A bound on values, not a promise of completeness: the body is kept byte for byte elsewhere.
const MAX_VALUES: usize = 200;
const MAX_TEXT_BYTES: usize = 1024;
const MAX_DEPTH: usize = 8;

/// Escapes what a terminal, a log line or a PostgreSQL `text` column would stumble over, and cuts
/// what is longer than a kilobyte.
pub(super) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if out.len() >= MAX_TEXT_BYTES {
            out.push('…');
            break;
        }
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// Properties and headers as one JSON object.
pub(super) fn describe(properties: &BasicProperties) -> Value {
    let mut out = Map::new();
    let mut put = |name: &str, value: &Option<ShortString>| {
        if let Some(value) = value {
            out.insert(name.to_owned(), Value::String(printable(value.as_str())));
        }
    };
    put("content_type", properties.content_type());
    put("content_encoding", properties.content_encoding());
    put("correlation_id", properties.correlation_id());
    put("reply_to", properties.reply_to());
    put("expiration", properties.expiration());
    put("message_id", properties.message_id());
    put("type", properties.kind());
    put("user_id", properties.user_id());
    put("app_id", properties.app_id());
    // As text, because the field is 64 bits wide and nothing says that it holds a real time.
    if let Some(timestamp) = properties.timestamp() {
        out.insert("timestamp".to_owned(), Value::String(timestamp.to_string()));
    }
    if let Some(headers) = properties.headers() {
        let mut budget = MAX_VALUES;
        out.insert("headers".to_owned(), table(headers, 0, &mut budget));
    }
    Value::Object(out)
}

fn table(fields: &FieldTable, depth: usize, budget: &mut usize) -> Value {
    let mut out = Map::new();
    for (name, field) in fields.inner() {
        if *budget == 0 {
            out.insert("…".to_owned(), Value::String("left out".to_owned()));
            break;
        }
        out.insert(printable(name.as_str()), value(field, depth + 1, budget));
    }
    Value::Object(out)
}

fn value(field: &AMQPValue, depth: usize, budget: &mut usize) -> Value {
    *budget = budget.saturating_sub(1);
    if depth > MAX_DEPTH {
        return Value::String("left out".to_owned());
    }
    match field {
        AMQPValue::Boolean(v) => json!(v),
        AMQPValue::ShortShortInt(v) => json!(v),
        AMQPValue::ShortShortUInt(v) => json!(v),
        AMQPValue::ShortInt(v) => json!(v),
        AMQPValue::ShortUInt(v) => json!(v),
        AMQPValue::LongInt(v) => json!(v),
        AMQPValue::LongUInt(v) => json!(v),
        AMQPValue::LongLongInt(v) => json!(v),
        // As text: JSON has no NaN, and a printed float is only for people here.
        AMQPValue::Float(v) => Value::String(v.to_string()),
        AMQPValue::Double(v) => Value::String(v.to_string()),
        AMQPValue::DecimalValue(v) => Value::String(format!("{}e-{}", v.value, v.scale)),
        AMQPValue::ShortString(v) => Value::String(printable(v.as_str())),
        AMQPValue::LongString(v) => text_or_hex(v.as_bytes()),
        AMQPValue::ByteArray(v) => hex(v.as_slice()),
        AMQPValue::Timestamp(v) => Value::String(v.to_string()),
        AMQPValue::FieldArray(v) => array(v.as_slice(), depth, budget),
        AMQPValue::FieldTable(v) => table(v, depth, budget),
        AMQPValue::Void => Value::Null,
    }
}

fn array(items: &[AMQPValue], depth: usize, budget: &mut usize) -> Value {
    let mut out = Vec::new();
    for item in items {
        if *budget == 0 {
            out.push(Value::String("left out".to_owned()));
            break;
        }
        out.push(value(item, depth + 1, budget));
    }
    Value::Array(out)
}

fn text_or_hex(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::String(printable(text)),
        Err(_) => hex(bytes),
    }
}

fn hex(bytes: &[u8]) -> Value {
    let shown: String = bytes.iter().take(MAX_TEXT_BYTES).map(|b| format!("{b:02x}")).collect();
    json!({ "hex": shown, "bytes": bytes.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_header_becomes_text_that_can_be_stored() {
        let mut headers = FieldTable::default();
        let mut put = |name: &str, value| {
            headers.insert(name.into(), value);
        };
        put("nul\0name", AMQPValue::LongString("a\0b\u{1b}[31m".into()));
        put("bytes", AMQPValue::LongString(vec![0xff, 0xfe].into()));
        put("nan", AMQPValue::Double(f64::NAN));
        put("long", AMQPValue::LongString("x".repeat(100_000).into()));
        let many: Vec<_> = (0..10_000).map(AMQPValue::LongInt).collect();
        put("z many", AMQPValue::FieldArray(many.into()));
        let shown = describe(&BasicProperties::default().with_headers(headers)).to_string();
        assert!(shown.len() < 8 * 1024, "{}", shown.len());
        assert!(!shown.contains("\\u0000") && !shown.chars().any(char::is_control), "{shown}");
        assert!(shown.contains("fffe") && shown.contains("NaN"), "{shown}");
    }
}
