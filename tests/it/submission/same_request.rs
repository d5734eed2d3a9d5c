//! What makes two submissions the same request: the material arguments under the record's contract,
//! at the Rust API and for a row that SQL wrote; at the SQL function the bytes, which may call
//! different what Rust calls equal and never the reverse.

use oncebox::ingress::Submission;

use super::{NOWHERE, REFUND, asking, refund, world};
use crate::support::doors::{Door, column};
use crate::support::world::World;

/// A contract named `tool` whose material fields are `fields`, each of any type.
fn anything(tool: &str, fields: &[&str]) -> String {
    let pointers = fields.iter().map(|field| format!("/{field}")).collect::<Vec<_>>().join(", ");
    let properties =
        fields.iter().map(|field| format!("{field}: {{}}")).collect::<Vec<_>>().join(", ");
    crate::support::downstream::tickets(NOWHERE, "")
        .replace("name: tickets.create", &format!("name: {tool}"))
        .replace("required: [subject]", "required: []")
        .replace("    subject: {type: string}\n    body: {type: string}\n", "")
        .replace("  properties:\n", &format!("  properties: {{{properties}}}\n"))
        .replace("fields: [/subject, /body]", &format!("fields: [{pointers}]"))
        .replace(
            r#"body: {queue: support, subject: "{/subject}", body: "{/body}"}"#,
            "body: {queue: support}",
        )
}

/// `(case, fields, one, other, the same request)`; the numbers' rule is `exact`.
const PAIRS: &[(&str, &[&str], &str, &str, bool)] = &[
    (
        "fp01",
        &["queue", "subject", "tenant"],
        r#"{"queue":"support","subject":"Refund","tenant":"acme"}"#,
        r#"{"tenant":"acme","subject":"Refund","queue":"support"}"#,
        true,
    ),
    (
        "fp02",
        &["lines", "meta"],
        r#"{"lines":[{"sku":"A","qty":1}],"meta":{"z":1,"a":{"y":2,"b":3}}}"#,
        r#"{"meta":{"a":{"b":3,"y":2},"z":1},"lines":[{"qty":1,"sku":"A"}]}"#,
        true,
    ),
    (
        "fp03",
        &["steps"],
        r#"{"steps":["hold","capture"]}"#,
        r#"{"steps":["capture","hold"]}"#,
        false,
    ),
    ("fp04", &["a", "b"], "{ \"a\" : 1 ,\n\t\"b\":[ ] }", r#"{"a":1,"b":[]}"#, true),
    ("fp05", &["n"], r#"{"n":"caf\u00e9"}"#, r#"{"n":"café"}"#, true),
    ("fp06", &["u"], r#"{"u":"a\/b"}"#, r#"{"u":"a/b"}"#, true),
    ("fp11", &["amount"], r#"{"amount":10}"#, r#"{"amount":10.0}"#, false),
    ("fp12", &["n"], r#"{"n":1e2}"#, r#"{"n":100}"#, false),
    ("fp14", &["id"], r#"{"id":9007199254740992}"#, r#"{"id":9007199254740993}"#, false),
    ("fp15", &["id"], r#"{"id":18446744073709551616}"#, r#"{"id":18446744073709551617}"#, false),
    ("fp18", &["amount"], r#"{"amount":1e400}"#, r#"{"amount":1e401}"#, false),
    ("fp18null", &["amount"], r#"{"amount":1e400}"#, r#"{"amount":null}"#, false),
    ("minuszero", &["n"], r#"{"n":-0}"#, r#"{"n":0}"#, false),
    ("fp26", &["note"], r#"{"note":null}"#, "{}", false),
    ("fp27", &["amount"], r#"{"amount":"10"}"#, r#"{"amount":10}"#, false),
    ("fp28", &["a"], r#"{"a":{}}"#, r#"{"a":[]}"#, false),
    ("fp31", &["price"], r#"{"price":"0.1"}"#, r#"{"price":"0.10"}"#, false),
];

async fn expect(
    world: &World,
    first: Door,
    second: Door,
    pair: &(&str, &[&str], &str, &str, bool),
) {
    let (case, _, one, other, same) = pair;
    for (one, other) in [(one, other), (other, one)] {
        let step = format!(
            "{case}-{first:?}-{second:?}-{}",
            one.len() * 1000 + usize::from(*one < *other)
        );
        let submission = |arguments: &str| world.submission(case, &step, arguments);
        first.submit(world, &submission(one)).await.unwrap();
        let told = second.submit(world, &submission(other)).await.unwrap();
        let expected = if *same && second == Door::Rust { "in_flight" } else { "rejected" };
        assert_eq!(told["status"], expected, "{step}");
        let again = second.submit(world, &submission(one)).await.unwrap();
        assert_eq!(
            again["status"], "in_flight",
            "{step}: the very bytes are the same at every door"
        );
    }
}

#[tokio::test]
async fn equal_material_is_the_same_request_and_bytes_decide_at_the_sql_function() {
    let world = World::new().await;
    for pair in PAIRS {
        world.contract(&anything(pair.0, pair.1)).await;
        for first in Door::BOTH {
            for second in Door::BOTH {
                expect(&world, first, second, pair).await;
            }
        }
    }
}

#[tokio::test]
async fn a_row_without_fingerprint_is_compared_and_left_without() {
    let world = world().await;
    Door::Sql.submit(&world, &refund(&world, "s1")).await.unwrap();
    let turned = r#"{ "body" : "secret-of-the-first", "subject" : "Refund" }"#;
    let told = Door::Rust.submit(&world, &asking(&world, "s1", turned)).await.unwrap();
    assert_eq!(told["status"], "in_flight");
    assert_eq!(column(&world, "s1", "request_fingerprint").await, None);
    assert_eq!(column(&world, "s1", "arguments").await.as_deref(), Some(REFUND));
}

#[tokio::test]
async fn trace_actor_metadata_and_times_are_no_part_of_the_request() {
    for door in Door::BOTH {
        let world = world().await;
        let first = Submission {
            actor: Some("alice".into()),
            metadata: Some(r#"{"attempt":1,"received_at":"2026-01-01T00:00:00Z"}"#.into()),
            traceparent: Some(format!("00-{}-{}-01", "a".repeat(32), "b".repeat(16))),
            ..refund(&world, "s1")
        };
        let second = Submission {
            actor: Some("bob".into()),
            metadata: Some(r#"{"attempt":7}"#.into()),
            traceparent: Some(format!("00-{}-{}-00", "c".repeat(32), "d".repeat(16))),
            ..refund(&world, "s1")
        };
        door.submit(&world, &first).await.unwrap();
        assert_eq!(door.submit(&world, &second).await.unwrap()["status"], "in_flight", "{door:?}");
        assert_eq!(column(&world, "s1", "actor").await.as_deref(), Some("alice"), "{door:?}");
    }
}

#[tokio::test]
async fn what_is_submitted_is_stored_as_it_came() {
    for door in Door::BOTH {
        let world = world().await;
        let arguments = "{ \"subject\" : \"Re\\u0066und 1.0e+2\",\n \"body\":\"é\" }";
        door.submit(&world, &asking(&world, "s1", arguments)).await.unwrap();
        assert_eq!(column(&world, "s1", "arguments").await.as_deref(), Some(arguments), "{door:?}");
    }
}
