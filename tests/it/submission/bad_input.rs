//! Malformed input never stands: a door refuses it in one line that names the place and the remedy
//! and echoes nothing; what only the SQL function lets in ends `rejected / invalid_arguments` at its
//! first claim, without a fingerprint, and stops nobody.

use oncebox::domain::operation::Timestamp;
use oncebox::ingress::{Publisher, Submission};
use sqlx::Executor as _;

use super::{REFUND, asking, refund, world};
use crate::support::doors::{Door, column, everything};
use crate::support::downstream::{Downstream, tickets};
use crate::support::world::World;

/// Stands in every malformed value; must stand in no refusal.
const MARK: &str = "hunter2";

fn one_line(what: &str, text: &str, place: &str) {
    assert!(!text.is_empty() && text.lines().count() == 1, "{what}: {text:?}");
    assert!(text.len() < 400, "{what}: {} bytes", text.len());
    assert!(!text.contains(MARK), "{what} echoes: {text}");
    assert!(text.contains(place), "{what} names {place:?}: {text}");
}

/// What neither door takes: the place that the refusal names, and the submission.
fn refused_by_both(world: &World) -> Vec<(&'static str, Submission)> {
    let base = || refund(world, "s1");
    let secret = format!("sk_live_{MARK}");
    let far = Timestamp(221_845_392_000_000_000);
    vec![
        ("tenant", Submission { tenant: format!("{MARK} {MARK}"), ..base() }),
        ("tenant", Submission { tenant: String::new(), ..base() }),
        ("environment", Submission { environment: MARK.to_uppercase() + MARK, ..base() }),
        ("workflow_id", Submission { workflow_id: String::new(), ..base() }),
        ("workflow_id", Submission { workflow_id: MARK.repeat(40), ..base() }),
        ("workflow_id", Submission { workflow_id: secret.clone(), ..base() }),
        ("step_id", Submission { step_id: format!("{MARK}\u{7}"), ..base() }),
        ("step_id", Submission { step_id: format!("{MARK}\n{MARK}"), ..base() }),
        ("step_id", Submission { step_id: format!("Bearer {MARK}"), ..base() }),
        ("step_id", Submission { step_id: format!("{MARK}@example.org"), ..base() }),
        ("ordering_key", Submission { ordering_key: Some(String::new()), ..base() }),
        ("ordering_key", Submission { ordering_key: Some(MARK.repeat(40)), ..base() }),
        ("actor", Submission { actor: Some(MARK.repeat(40)), ..base() }),
        ("distinct_from", Submission { distinct_from: Some(MARK.repeat(300)), ..base() }),
        ("traceparent", Submission { traceparent: Some(MARK.into()), ..base() }),
        ("not_before", Submission { not_before: Some(far), ..base() }),
        (
            "not_before",
            Submission {
                not_before: Some(Timestamp(1)),
                ordering_key: Some(MARK.into()),
                ..base()
            },
        ),
        (
            "metadata",
            Submission { metadata: Some(format!("\"{}\"", MARK.repeat(10_000))), ..base() },
        ),
        ("tool", Submission { tool: MARK.into(), ..base() }),
        ("version", Submission { tool_version: Some(MARK.into()), ..base() }),
    ]
}

#[tokio::test]
async fn both_doors_refuse_it_in_one_line_and_store_nothing() {
    let world = world().await;
    for (place, submission) in refused_by_both(&world) {
        for door in Door::BOTH {
            let refused = door.submit(&world, &submission).await.unwrap_err();
            one_line(&format!("{door:?} {place}"), &refused.text, place);
            let remedy = [
                "must",
                "use",
                "give",
                "may have",
                "at most",
                "1 to 200",
                "activate",
                "exclude",
                "leave",
                "W3C",
                "send",
                "an operation key",
            ];
            assert!(
                remedy.iter().any(|word| refused.text.contains(word)),
                "{door:?}: {}",
                refused.text
            );
        }
    }
    assert!(everything(&world).await.is_empty());
}

/// `(place, arguments)` that the Rust API refuses and PostgreSQL's `json` holds.
fn held_by_json() -> Vec<(&'static str, String)> {
    let nested = |depth: usize| {
        format!(r#"{{"subject":"{MARK}","body":{}{}}}"#, "[".repeat(depth), "]".repeat(depth))
    };
    vec![
        ("/body", format!(r#"{{"subject":"{MARK}","body":"a\u0000b"}}"#)),
        ("the top level", format!(r#"{{"subject":"{MARK}","k\u0000":1}}"#)),
        ("/body", format!(r#"{{"subject":"{MARK}","body":"\ud800"}}"#)),
        ("/body", format!(r#"{{"subject":"{MARK}","body":"\udc00\ud800"}}"#)),
        ("/subject", format!(r#"{{"subject":"{MARK}","subject":"{MARK}"}}"#)),
        ("/subject", format!(r#"{{"subject":"{MARK}","s\u0075bject":"{MARK}"}}"#)),
        (
            "/body/0/b/to",
            format!(r#"{{"subject":"{MARK}","body":[{{"b":{{"to":"{MARK}","x":1,"to":"m"}}}}]}}"#),
        ),
        ("/body", nested(64)),
        ("/body", nested(1000)),
        ("/subject", format!(r#"{{"subject":{{"{MARK}":7}}}}"#)),
        ("/body", format!(r#"{{"subject":"{MARK}","body":1e400}}"#)),
        ("the top level", "[]".into()),
        ("the top level", "null".into()),
        ("subject", "{}".into()),
    ]
}

#[tokio::test]
async fn the_rust_api_refuses_what_json_in_the_database_would_hold() {
    let world = world().await;
    for (place, arguments) in held_by_json() {
        let refused =
            Door::Rust.submit(&world, &asking(&world, "s1", &arguments)).await.unwrap_err();
        one_line(place, &refused.text, place);
    }
    assert!(everything(&world).await.is_empty());
}

#[tokio::test]
async fn what_is_no_json_at_all_stands_nowhere() {
    let world = world().await;
    let cases = [
        "\u{feff}{}",
        "{\"a\":1} {\"a\":2}",
        "{\"a\":NaN}",
        "{\"subject\":\"hunter2",
        "",
        "{'a':1}",
        "{\"subject\":01}",
    ];
    for arguments in cases {
        for door in Door::BOTH {
            let refused = door.submit(&world, &asking(&world, "s1", arguments)).await.unwrap_err();
            one_line(arguments, &refused.text, "");
        }
    }
    assert!(everything(&world).await.is_empty());
}

#[tokio::test]
async fn a_nul_in_any_text_is_refused_by_the_rust_api_and_spoils_no_transaction() {
    let world = world().await;
    let nul = format!("{MARK}\0");
    let base = || refund(&world, "bad");
    let bad = [
        Submission { tenant: nul.clone(), ..base() },
        Submission { environment: nul.clone(), ..base() },
        Submission { workflow_id: nul.clone(), ..base() },
        Submission { step_id: nul.clone(), ..base() },
        Submission { tool: nul.clone(), ..base() },
        Submission { tool_version: Some(nul.clone()), ..base() },
        Submission { actor: Some(nul.clone()), ..base() },
        Submission { ordering_key: Some(nul.clone()), ..base() },
        Submission { distinct_from: Some(nul.clone()), ..base() },
        Submission { traceparent: Some(nul.clone()), ..base() },
        Submission { metadata: Some(format!("\"{MARK}\\u0000\"")), ..base() },
        Submission { arguments: format!("{{\"subject\":\"{nul}\"}}"), ..base() },
    ];
    let mut list = bad.to_vec();
    list.push(refund(&world, "good"));
    let mut connection = world.connect().await;
    connection.execute("begin").await.unwrap();
    let told = Publisher::default().submit_many(&mut connection, &list).await.unwrap();
    connection.execute("commit").await.unwrap();
    for (n, answer) in told.iter().take(bad.len()).enumerate() {
        one_line(&format!("case {n}"), &answer.as_ref().unwrap_err().to_string(), "");
    }
    assert!(told.last().unwrap().is_ok(), "its neighbour stands");
    assert_eq!(world.count("select count(*) from oncebox.operations").await, 1);
}

#[tokio::test]
async fn one_mebibyte_is_the_limit_at_both_doors() {
    let world = world().await;
    let frame = r#"{"subject":"","body":""}"#.len();
    let filled = |bytes: usize| {
        format!(r#"{{"subject":"{MARK}","body":"{}"}}"#, "x".repeat(bytes - frame - MARK.len()))
    };
    for door in Door::BOTH {
        let (fits, over) = (filled(1024 * 1024), filled(1024 * 1024 + 1));
        assert_eq!(fits.len(), 1024 * 1024);
        let refused = door
            .submit(&world, &asking(&world, &format!("over-{door:?}"), &over))
            .await
            .unwrap_err();
        one_line(
            "1 MiB and a byte",
            &refused.text,
            if door == Door::Sql { "1 MiB" } else { "1048576" },
        );
        door.submit(&world, &asking(&world, &format!("fits-{door:?}"), &fits)).await.unwrap();
    }
    assert_eq!(world.count("select count(*) from oncebox.operations").await, 2);
}

#[tokio::test]
async fn sql_rows_that_are_no_valid_request_are_rejected_at_the_first_claim_and_stop_nobody() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "")).await;
    let bad = held_by_json();
    for (n, (_, arguments)) in bad.iter().enumerate() {
        let told =
            Door::Sql.submit(&world, &asking(&world, &format!("bad{n}"), arguments)).await.unwrap();
        assert_eq!(told["status"], "in_flight");
    }
    let odd = Submission {
        metadata: Some(r#"{"a\u0000":"\ud800","a\u0000":1}"#.into()),
        ..refund(&world, "good")
    };
    Door::Sql.submit(&world, &odd).await.unwrap();
    let roles = world.run("relay,worker,maintain");
    world.settled(60).await;
    assert_eq!(world.status("good").await.0, "applied");
    for (n, (place, arguments)) in bad.iter().enumerate() {
        let step = format!("bad{n}");
        let ended = ("rejected".into(), "invalid_arguments".into());
        assert_eq!(world.status(&step).await, ended, "{place}");
        assert_eq!(column(&world, &step, "request_fingerprint").await, None);
        assert_eq!(column(&world, &step, "first_sent_at").await, None);
        let stored = column(&world, &step, "arguments").await;
        assert_eq!(stored.as_ref(), Some(arguments), "nothing is stripped");
    }
    assert_eq!(downstream.total().await, 1);
    assert_eq!(world.count("select count(*) from oncebox.dead_letters").await, 0);
    // No valid request ever stood under that key, so a valid one may.
    let told = Door::Sql.submit(&world, &asking(&world, "bad0", REFUND)).await.unwrap();
    assert_eq!(told["status"], "in_flight");
    world.settled(30).await;
    assert_eq!(world.status("bad0").await.0, "applied");
    roles.stop().await;
}

#[tokio::test]
async fn a_time_that_no_reader_can_hold_is_refused_by_the_sql_function() {
    let world = world().await;
    for far in ["infinity", "290000-01-01", "9000-01-01 00:00:00+00"] {
        let mut connection = world.connect().await;
        let refused = sqlx::query("select oncebox.submit('acme', 'test', 'run', 's1', 'tickets.create', null, '{}', not_before => $1::text::timestamptz)")
            .bind(far)
            .execute(&mut connection)
            .await
            .unwrap_err();
        assert!(refused.to_string().contains("before the year 9000"), "{refused}");
    }
    let mut connection = world.connect().await;
    sqlx::query("select oncebox.submit('acme', 'test', 'run', 's1', 'tickets.create', null, '{}', not_before => '-infinity')")
        .execute(&mut connection)
        .await
        .unwrap();
    let told = Door::Sql.submit(&world, &asking(&world, "s1", "{}")).await.unwrap();
    assert_eq!(told["retry_after_seconds"], 1, "long ago means now");
}

#[tokio::test]
async fn a_submission_as_a_json_object_is_read_strictly() {
    let cases: &[(&str, &str)] = &[
        (r#"{"tenant":"a","tenant":"b"}"#, "/tenant"),
        (r#"{"tenant":7}"#, "/tenant: must be a string"),
        (r#"{"hunter2":1,"arguments":{}}"#, "tenant, environment, workflow_id"),
        (r#"{"tenant":"a"}"#, "/arguments: missing"),
        (r#"{"arguments":{},"not_before":"hunter2"}"#, "/not_before"),
        (r#"["hunter2"]"#, "a submission is a JSON object"),
    ];
    for (text, place) in cases {
        let refused = Submission::from_json(text.as_bytes()).unwrap_err();
        one_line(text, &refused.to_string(), place);
    }
}
