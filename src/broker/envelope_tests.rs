use super::super::outgoing::{OutgoingEvent, OutgoingMessage, RESULT_TYPE, Unencodable};
use super::*;

const ID: &str = "018f6f3e-7a1c-7c3e-9d5a-3f2b1c0d9e8f";

fn good() -> String {
    format!(r#"{{"operation_id":"{ID}","tenant":"acme","operation_key":"acme:test:w:s"}}"#)
}

fn check(body: impl AsRef<[u8]>, expected: Result<(), &'static str>) {
    let body = body.as_ref();
    let read = read_envelope(None, None, body).map(|_| ()).map_err(|error| error.reason);
    assert_eq!(read, expected, "{}", String::from_utf8_lossy(body));
}

#[test]
fn only_an_envelope_is_an_envelope() {
    check(good(), Ok(()));
    check(good().replace('{', r#"{"later":[1],"#), Ok(()));
    check("", Err("body_empty"));
    check("not json", Err("body_not_json"));
    check(b"{\"v\":\"\xff\"}", Err("body_not_utf8"));
    check(r#"{"amount":1,"amount":100}"#, Err("body_duplicate_member"));
    check(good().replace('{', r#"{"tenan\u0074":"other","#), Err("body_duplicate_member"));
    check(format!("\u{feff}{}", good()), Err("body_has_bom"));
    check(format!("{0}{0}", good()), Err("body_trailing_data"));
    check("[]", Err("body_not_an_object"));
    check(r#"{"v":1}"#, Err("operation_id_missing"));
    check(good().replace(ID, "1"), Err("operation_id_not_uuid"));
    check(good().replace(ID, &ID.replace('-', "")), Err("operation_id_not_uuid"));
    check(good().replace(r#""acme""#, "7"), Err("member_not_a_string"));
    check(good().replace(r#""acme""#, r#""""#), Err("tenant_invalid"));
    check(good().replace("w:s", r"w:s\u0000"), Err("body_nul"));
    check(good().replace("w:s", r"w:s\n"), Err("operation_key_invalid"));
    check(good().replace(r#""tenant":"acme","#, ""), Err("tenant_missing"));
    check(format!("{}{}", good(), " ".repeat(MAX_BODY_BYTES)), Err("body_too_large"));
}

#[test]
fn another_format_is_not_guessed_at() {
    let read = |kind, content_type| {
        read_envelope(kind, content_type, good().as_bytes()).map_err(|error| error.reason).err()
    };
    assert_eq!(read(None, None), None);
    assert_eq!(read(Some(OPERATION_TYPE), Some("Application/JSON; charset=utf-8")), None);
    assert_eq!(read(Some("oncebox.operation.v2"), None), Some("message_type_unknown"));
    assert_eq!(read(None, Some("text/plain")), Some("content_type_not_json"));
}

fn message() -> OutgoingMessage {
    OutgoingMessage {
        message_id: Uuid::nil(),
        tool: "tickets.create".to_owned(),
        operation_id: ID.parse().unwrap(),
        tenant: "acme".to_owned(),
        operation_key: "acme:test:w:s".to_owned(),
        traceparent: Some("00-x".to_owned()),
    }
}

#[test]
fn what_goes_out_can_come_in() {
    let encoded = message().encode(131_072).map_err(Unencodable::code).unwrap();
    assert_eq!(String::from_utf8_lossy(&encoded.body), good());
    let kind = encoded.properties.kind().as_ref().unwrap().as_str();
    let read = read_envelope(Some(kind), Some(CONTENT_TYPE), &encoded.body).unwrap();
    assert_eq!(read.operation_id.to_string(), ID);
}

fn event() -> OutgoingEvent {
    OutgoingEvent {
        message_id: Uuid::nil(),
        routing_key: "acme.tickets.create.applied".to_owned(),
        body: "{\"status\":\"applied\"}".to_owned(),
        tenant: "acme".to_owned(),
        operation_key: "acme:test:w:s".to_owned(),
        traceparent: None,
    }
}

/// A tool's queue that somebody bound to the results gets what its consumer does not take for work.
#[test]
fn an_event_is_no_operation() {
    let encoded = event().encode(131_072).map_err(Unencodable::code).unwrap();
    assert_eq!(encoded.routing_key.as_str(), "acme.tickets.create.applied");
    assert_eq!(encoded.body, event().body.as_bytes());
    let kind = encoded.properties.kind().as_ref().unwrap().as_str();
    assert_eq!(kind, RESULT_TYPE);
    let read = read_envelope(Some(kind), Some(CONTENT_TYPE), &encoded.body);
    assert_eq!(read.unwrap_err().reason, "message_type_unknown");
}

#[test]
fn what_would_cost_the_connection_is_refused_before() {
    let refuse = |message: OutgoingMessage| message.encode(4096).map(|_| ()).unwrap_err();
    let long_tool = OutgoingMessage { tool: "t".repeat(256), ..message() };
    assert_eq!(refuse(long_tool), Unencodable::RoutingKeyTooLong);
    let long_trace = OutgoingMessage { traceparent: Some("0".repeat(5000)), ..message() };
    assert_eq!(refuse(long_trace), Unencodable::HeadersTooLarge);
    let long_key = OutgoingMessage { operation_key: "k".repeat(20_000), ..message() };
    assert_eq!(refuse(long_key), Unencodable::BodyTooLarge);
}

#[test]
fn neither_keys_nor_payloads_are_printed() {
    let envelope = read_envelope(None, None, good().as_bytes()).unwrap();
    for shown in [format!("{envelope:?}"), format!("{:?}", message()), format!("{:?}", event())] {
        assert!(!shown.contains("acme:test"), "{shown}");
    }
}
