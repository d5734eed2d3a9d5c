//! What needs a person's approval waits for it; the answer is to exactly what was shown, and by
//! somebody else than who submitted.

use oncebox::ingress::Submission;
use serde_json::{Value, json};

use super::kit::{self, Kind};
use crate::support::contracts::{ContractText, blind, deduplicating};

/// Requests for queue vip need one; it is waited for, and holds, an hour.
fn vip(kind: ContractText) -> ContractText {
    kind.approved("vip", "1h", "1h").more(kit::RETRY)
}

#[tokio::test]
async fn it_waits_and_what_is_approved_is_applied_once() {
    for (tool, kind) in [("tickets.keyed", deduplicating as Kind), ("tickets.blind", blind)] {
        let (world, downstream) = kit::stage(|url| vip(kind(url))).await;
        let roles = kit::roles(&world);
        kit::ask(&world, tool, "a", "vip").await;
        kit::waits(&world, "a").await;
        let told = world.submit(&kit::asked(&world, tool, "a", "vip")).await.unwrap();
        let told = serde_json::to_value(told).unwrap();
        assert_eq!(
            (&told["status"], &told["next_action"], &told["safe_to_repeat"]),
            (&json!("in_flight"), &json!("ask_for_approval"), &json!(false)),
            "{tool}"
        );
        kit::ask(&world, tool, "usual", "support").await;
        kit::ends(&world, "usual", "applied").await;
        assert_eq!(kit::requests(&downstream).await, 1, "{tool}: the one that needs none");

        kit::approve(&world, "a").await;
        kit::ends(&world, "a", "applied").await;
        assert_eq!((downstream.total().await, kit::requests(&downstream).await), (2, 2), "{tool}");
        let story = kit::story(&world, "a").await;
        assert!(story.contains("resolved claimed authorized sent"), "{tool}: {story}");
        let usual = kit::story(&world, "usual").await;
        assert!(!usual.contains("authorized"), "{tool}: {usual}");
        roles.stop().await;
    }
}

#[tokio::test]
async fn an_approver_is_shown_what_they_approve_and_how() {
    let (world, _downstream) = kit::stage(|url| vip(deduplicating(url))).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "vip").await;
    let id = kit::waits(&world, "a").await.id;
    let listed = kit::done(&world, &["ops", "list", "--phase", "awaiting_approval"]).await;
    assert!(listed.shown.contains(&id.to_string()), "{listed:?}");

    let fingerprint = kit::shown(&world, "a").await;
    let page = kit::done(&world, &["ops", "show", &kit::key("a")]).await.shown;
    for part in [
        format!("`oncebox ops approve {id} --fingerprint {fingerprint} --by NAME`"),
        format!("`oncebox ops deny {id} --fingerprint {fingerprint} --by NAME --reason WHY`"),
        "tickets.keyed".to_owned(),
        "state requested".to_owned(),
        "/queue_id".to_owned(),
    ] {
        assert!(page.contains(&part), "{part}: {page}");
    }
    assert!(!page.contains("vip"), "no values unless they are asked for: {page}");
    let words = ["ops", "show", &kit::key("a"), "--json", "--with-arguments", "--by", "ann"];
    let seen = kit::done(&world, &words).await.json();
    assert_eq!(seen["material"], json!(["/queue_id", "/subject"]));
    assert_eq!(seen["arguments"], json!({"queue_id": "vip", "subject": "a"}));
    assert_eq!(seen["approval"]["fingerprint"], json!(fingerprint));
    let last = seen["trace"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["event"], &last["detail"]),
        (&json!("shown"), &json!({"what": ["arguments"], "by": "ann"})),
        "who looks at arguments is written down"
    );
    kit::approve(&world, "a").await;
    kit::ends(&world, "a", "applied").await;
    let seen = kit::done(&world, &["ops", "show", &kit::key("a"), "--json"]).await.json();
    assert_eq!(
        (&seen["approval"]["state"], &seen["approval"]["answered_by"]),
        (&json!("approved"), &json!("ann"))
    );
    assert!(seen["approval"]["expires_at"].is_string());
    let resolved = |row: &&Value| row["event"] == "resolved";
    let answer = seen["trace"].as_array().unwrap().iter().find(resolved).unwrap();
    assert_eq!(answer["detail"], json!({"verb": "approve", "by": "ann", "why": ""}));
    roles.stop().await;
}

#[tokio::test]
async fn an_answer_to_another_request_or_by_the_submitting_actor_is_refused() {
    let (world, downstream) = kit::stage(|url| vip(deduplicating(url))).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "vip").await;
    kit::ask(&world, "tickets.keyed", "b", "vip").await;
    let (key, fingerprint) = (kit::key("a"), {
        kit::waits(&world, "a").await;
        kit::shown(&world, "a").await
    });
    kit::waits(&world, "b").await;
    let other = kit::shown(&world, "b").await;
    for verb in ["approve", "deny"] {
        for (shown, by, told) in [
            (other.as_str(), "ann", "the fingerprint is another one"),
            ("sha256:1:00", "ann", "the fingerprint is another one"),
            (&fingerprint, kit::AGENT, "the submitting actor cannot answer"),
            (&fingerprint, " agent-7 ", "the submitting actor cannot answer"),
        ] {
            let words =
                ["ops", verb, &key, "--fingerprint", shown, "--by", by, "--reason", "because"];
            let ended = kit::cli(&world, &words).await;
            assert_eq!(ended.code, 1, "{words:?}: {ended:?}");
            assert!(ended.told.contains(told), "{words:?}: {ended:?}");
            assert!(!ended.told.contains(&fingerprint), "who approves has to look: {ended:?}");
        }
    }
    let nobody = ["ops", "approve", &key, "--fingerprint", &fingerprint, "--by", " "];
    assert_eq!(kit::cli(&world, &nobody).await.code, 2);
    kit::waits(&world, "a").await;
    assert_eq!(kit::requests(&downstream).await, 0);
    roles.stop().await;
}

#[tokio::test]
async fn what_is_denied_ends_and_asks_again_when_it_comes_again() {
    let (world, downstream) = kit::stage(|url| vip(deduplicating(url))).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "vip").await;
    kit::waits(&world, "a").await;
    let (key, fingerprint) = (kit::key("a"), kit::shown(&world, "a").await);
    let deny = ["ops", "deny", &key, "--fingerprint", &fingerprint, "--by", "ann", "--reason"];
    let without = [&deny[..], &[" "]].concat();
    assert_eq!(kit::cli(&world, &without).await.code, 2, "a reason is needed");
    let told = kit::done(&world, &[&deny[..], &["wrong queue", "--json"]].concat()).await.json();
    assert_eq!(
        (&told["status"], &told["reason"], &told["safe_to_repeat"]),
        (&json!("rejected"), &json!("approval_denied"), &json!(true))
    );
    kit::ask(&world, "tickets.keyed", "a", "vip").await;
    kit::waits(&world, "a").await;
    assert_eq!(kit::requests(&downstream).await, 0);
    kit::approve(&world, "a").await;
    kit::ends(&world, "a", "applied").await;
    assert_eq!((downstream.total().await, kit::requests(&downstream).await), (1, 1));
    roles.stop().await;
}

#[tokio::test]
async fn of_two_answers_at_once_one_counts() {
    let (world, downstream) = kit::stage(|url| vip(deduplicating(url))).await;
    let roles = kit::roles(&world);
    for step in ["a", "b", "c"] {
        kit::ask(&world, "tickets.keyed", step, "vip").await;
        kit::waits(&world, step).await;
        let (key, fingerprint) = (kit::key(step), kit::shown(&world, step).await);
        let say = |verb: &'static str, by: &'static str| {
            let (world, key, fingerprint) = (&world, &key, &fingerprint);
            async move {
                let words =
                    ["ops", verb, key, "--fingerprint", fingerprint, "--by", by, "--reason", "r"];
                kit::cli(world, &words).await.code
            }
        };
        let (yes, no) = tokio::join!(say("approve", "ann"), say("deny", "bob"));
        assert_eq!(yes + no, 1, "{step}: exactly one is taken");
        let status = if yes == 0 { "applied" } else { "rejected" };
        kit::ends(&world, step, status).await;
        assert_eq!(kit::effects_of(&world, &downstream, step).await, u64::from(yes == 0), "{step}");
    }
    roles.stop().await;
}

/// The approver of an earlier submission becomes the actor of a later one: the old approval would be
/// its own.
#[tokio::test]
async fn what_is_opened_again_is_asked_for_again() {
    let kind = |url: &str| vip(deduplicating(url)).precondition();
    let (world, downstream) = kit::stage(kind).await;
    downstream.preconditions().always(412).await;
    let roles = kit::roles(&world);
    kit::ask(&world, "tickets.keyed", "a", "vip").await;
    kit::waits(&world, "a").await;
    kit::approve(&world, "a").await;
    kit::ends_for(&world, "a", "rejected", "precondition_failed").await;
    downstream.preconditions().as_usual().await;
    let by_ann =
        Submission { actor: Some("ann".into()), ..kit::asked(&world, "tickets.keyed", "a", "vip") };
    world.submit(&by_ann).await.unwrap();
    kit::waits(&world, "a").await;
    let (key, fingerprint) = (kit::key("a"), kit::shown(&world, "a").await);
    let approve = ["ops", "approve", &key, "--fingerprint", &fingerprint, "--by"];
    assert_eq!(kit::cli(&world, &[&approve[..], &["ann"]].concat()).await.code, 1);
    assert_eq!(kit::requests(&downstream).await, 0);
    kit::done(&world, &[&approve[..], &["bob"]].concat()).await;
    kit::ends(&world, "a", "applied").await;
    assert_eq!((downstream.total().await, kit::requests(&downstream).await), (1, 1));
    roles.stop().await;
}
