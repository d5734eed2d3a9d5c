//! Grants and what is overdue, as an operator gives and sees them.

use serde_json::{Value, json};

use super::kit;
use crate::support::contracts::deduplicating;
use crate::support::wire::execute;
use crate::support::world::World;

const ADD: [&str; 8] =
    ["grants", "add", "--tenant", "acme", "--actor", "agent-7", "--tool", "tickets.keyed"];

fn lines(shown: &str) -> Vec<Value> {
    shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_grant_is_given_listed_and_revoked_once() {
    let (world, _downstream) = kit::stage(|url| deduplicating(url).granted()).await;
    let limits = r#"{"/queue_id":["support"],"/n":10.0}"#;
    let more = ["--where", limits, "--until", "2100-01-01T00:00:00Z", "--by", " ann ", "--json"];
    let given = kit::done(&world, &[&ADD[..], &more].concat()).await;
    assert_eq!(given.told, "", "the tool is registered: nothing to say");
    let given = given.json();
    let id = given["grant_id"].as_str().unwrap().to_owned();
    assert_eq!(
        (&given["state"], &given["granted_by"], &given["until"], &given["revoked_at"]),
        (&json!("in_force"), &json!("ann"), &json!("2100-01-01T00:00:00Z"), &Value::Null)
    );
    assert_eq!(given["where"].to_string(), r#"{"/n":10.0,"/queue_id":["support"]}"#);
    let list = |words: &'static [&'static str]| {
        let world = &world;
        async move { kit::done(world, &[&["grants", "list"], words].concat()).await.shown }
    };
    let table = list(&["--tenant", "acme"]).await;
    assert!(table.contains(&id) && table.contains("in_force") && table.contains("/queue_id"));
    assert_eq!(lines(&list(&["--actor", "agent-7", "--json"]).await).len(), 1);
    assert_eq!(lines(&list(&["--actor", "agent-70", "--json"]).await).len(), 0);

    let revoked = kit::done(&world, &["grants", "revoke", &id, "--by", "bob", "--json"]).await;
    let revoked = revoked.json();
    assert_eq!((&revoked["state"], &revoked["revoked_by"]), (&json!("revoked"), &json!("bob")));
    let twice = kit::cli(&world, &["grants", "revoke", &id, "--by", "eve"]).await;
    assert!(twice.code == 1 && twice.told.contains("was revoked before"), "{twice:?}");
    assert_eq!(lines(&list(&["--json"]).await).len(), 0, "not among those in force");
    assert_eq!(lines(&list(&["--json", "--all"]).await)[0]["revoked_by"], "bob");
    let none = "0190a6f0-0000-7000-8000-000000000000";
    let none = kit::cli(&world, &["grants", "revoke", none, "--by", "ann"]).await;
    assert!(none.code == 1 && none.told.contains("no such grant"), "{none:?}");
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused_on_one_line() {
    let (world, _downstream) = kit::stage(|url| deduplicating(url).granted()).await;
    for (more, told) in [
        (["--where", "queue_id=support"], "not JSON: expected a value"),
        (["--where", r#"{"queue_id":"support"}"#], "begins with '/'"),
        (["--where", r#"{"/queue_id":[]}"#], "an empty list allows nothing"),
        (["--until", "tomorrow"], "an RFC 3339 time is needed"),
        (["--from", "2100-01-01T00:00:00Z"], "--until must be later than --from"),
    ] {
        let until: &[&str] =
            if more[0] == "--from" { &["--until", "2099-01-01T00:00:00Z"] } else { &[] };
        let ended = kit::cli(&world, &[&ADD[..], &more, until, &["--by", "ann"]].concat()).await;
        assert_eq!((ended.code, ended.told.lines().count()), (2, 1), "{more:?}: {ended:?}");
        assert!(ended.told.contains(told), "{more:?}: {ended:?}");
    }
    assert_eq!(world.count("select count(*) from oncebox.grants").await, 0);
    let unknown = ["grants", "add", "--tenant", "acme", "--actor", "a", "--tool", "no.such"];
    let ended = kit::done(&world, &[&unknown[..], &["--by", "ann"]].concat()).await;
    assert!(ended.told.contains("no contract of no.such is registered yet"), "{ended:?}");
}

#[tokio::test]
async fn doctor_names_a_tool_that_nobody_may_use() {
    let (world, _downstream) = kit::stage(|url| deduplicating(url).granted()).await;
    let found = |shown: &str| {
        let found = lines(shown).into_iter().find(|line| line["check"] == "grants");
        let found = found.expect("a line about grants");
        (found["verdict"].clone(), found["seen"].clone())
    };
    let doctor = ["doctor", "--json"];
    let (verdict, seen) = found(&kit::cli(&world, &doctor).await.shown);
    assert_eq!((verdict, seen), (json!("warn"), json!("tickets.keyed 1: nobody has a grant")));
    kit::grant(&world, "tickets.keyed", &[]).await;
    let (verdict, _) = found(&kit::cli(&world, &doctor).await.shown);
    assert_eq!(verdict, "ok");
    // Rights on the tables of this issue belong to the check.
    execute(&world, "alter table oncebox.approvals rename to elsewhere").await;
    let shown = kit::cli(&world, &doctor).await;
    assert_ne!(shown.code, 0, "{shown:?}");
}

/// An unknown one of each kind, two hours old: a contract with four hours, with one hour, with none.
async fn waiting(world: &World) {
    let url = "http://127.0.0.1:9";
    for (name, owner) in [
        ("t.late", "owner: {reconciliation: support, respond_within: 1h}"),
        ("t.early", "owner: {reconciliation: billing, respond_within: 4h}"),
        ("t.none", "owner: {reconciliation: nobody}"),
    ] {
        let text = deduplicating(url).name(name).text();
        let of = text.find("owner: {").unwrap();
        let end = of + text[of..].find('\n').unwrap();
        let text = format!("{}{owner}{}", &text[..of], &text[end..]);
        world.contract(&text).await;
        kit::ask(world, name, name, "support").await;
    }
    execute(
        world,
        "update oncebox.operations set status = 'unknown', phase = null, reason = 'no_proof', first_sent_at = now(), \
           unresolved_since = now() - interval '2 hours', next_lookup_at = now() + interval '1 minute'",
    )
    .await;
}

#[tokio::test]
async fn what_nobody_answered_in_time_is_listed_with_its_owner() {
    let world = World::new().await;
    waiting(&world).await;
    kit::ask(&world, "t.late", "parked", "support").await;
    execute(
        &world,
        "update oncebox.operations set phase = 'parked', reason = 'worker_lost', unresolved_since = now() - interval '3 hours' \
         where status = 'pending'",
    )
    .await;
    let table = kit::done(&world, &["ops", "list", "--overdue"]).await.shown;
    let rows: Vec<&str> = table.lines().skip(1).collect();
    assert_eq!(rows.len(), 2, "{table}");
    assert!(rows[0].contains("run:parked") && rows[0].contains("2h 0m"), "{table}");
    assert!(rows[1].contains("t.late") && rows[1].contains("support"), "{table}");
    let one = ["ops", "list", "--overdue", "--status", "unknown", "--json"];
    let listed = kit::done(&world, &one).await.json();
    let waits = &listed["waits_for"];
    assert_eq!(
        (&waits["owner"], &waits["respond_within"], &waits["overdue"]),
        (&json!("support"), &json!("1h"), &json!(true))
    );
    assert!((3600..3700).contains(&waits["overdue_seconds"].as_u64().unwrap()), "{waits}");

    let page = kit::done(&world, &["ops", "show", &kit::key("t.early")]).await.shown;
    let line = page.lines().find(|line| line.starts_with("waits for")).unwrap();
    assert!(line.contains("owner billing") && line.contains("overdue false"), "{line}");
    assert!(page.contains("next_lookup_at") && page.contains("unresolved_since"), "{page}");
    let page = kit::done(&world, &["ops", "show", &kit::key("t.none")]).await.shown;
    assert!(page.contains("owner nobody"), "{page}");
    let help = kit::done(&world, &["ops", "list", "--help"]).await.shown;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("without it wait too, and are never overdue"), "{help}");
}
