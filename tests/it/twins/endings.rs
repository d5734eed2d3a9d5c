//! Of many twins in a row the oldest decides: applied, and all others are rejected; ended without an
//! effect, and the next oldest goes on by itself, and only that one; open, and they stay held.

use serde_json::json;

use super::Stage;
use crate::consumer::kit;
use crate::support::contracts::blind;
use crate::support::eventually;

/// The steps `0..count`, the first under way and the others held behind it.
async fn row_of(stage: &Stage, count: usize) -> Vec<String> {
    let steps: Vec<String> = (0..count).map(|n| format!("s{n}")).collect();
    stage.under_way(&steps[0]).await;
    for step in &steps[1..] {
        stage.submit_held(step).await;
    }
    steps
}

async fn calls(stage: &Stage) -> u64 {
    stage.downstream.effects().await["requests"].as_u64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn applied_and_all_others_are_rejected() {
    for count in [3, 10] {
        let stage = Stage::new(|contract| contract).await;
        let roles = stage.run_with("relay,worker");
        let steps = row_of(&stage, count).await;
        stage.pause(false).await;
        stage.ends("s0", "applied").await;
        for step in &steps[1..] {
            stage.rejected_for(step, "s0").await;
        }
        assert_eq!((stage.downstream.total().await, calls(&stage).await), (1, 1));
        roles.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_and_the_next_oldest_goes_on_and_only_that_one() {
    for count in [3, 10] {
        let stage = Stage::new(|contract| contract).await;
        let roles = stage.run_with("relay,worker");
        let steps = row_of(&stage, count).await;
        // Each but the last is refused in turn.
        stage.downstream.control(json!({ "status": 422, "times": count - 1 })).await;
        stage.pause(false).await;
        stage.world.settled(30).await;
        assert_eq!(
            (stage.downstream.total().await, calls(&stage).await),
            (1, u64::try_from(count).unwrap())
        );
        let in_turn = "select coalesce(string_agg(o.operation_key, ',' order by e.event_id), '') \
            from oncebox.operation_events e join oncebox.operations o using (operation_id) where e.event = ";
        let of = async |event: &str| -> String {
            let sql = format!("{in_turn} '{event}'");
            let mut connection = stage.world.connect().await;
            sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&mut connection).await.unwrap()
        };
        let keys: Vec<String> = steps.iter().map(|step| super::key(step)).collect();
        assert_eq!(of("sent").await, keys.join(","), "each once, the oldest first");
        assert_eq!(of("settled").await, keys.join(","));
        let overlapping = "select count(*) from oncebox.operation_events s, oncebox.operation_events e \
            where s.event = 'sent' and e.event = 'sent' and s.event_id < e.event_id and not exists ( \
              select from oncebox.operation_events d where d.operation_id = s.operation_id and d.event = 'settled' \
                and d.event_id < e.event_id)";
        assert_eq!(stage.world.count(overlapping).await, 0, "one at a time");
        roles.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_goes_on_alone_when_the_one_before_it_is_refused() {
    let stage = Stage::new(|contract| contract).await;
    let roles = stage.run_with("relay,worker");
    let steps = row_of(&stage, 5).await;
    // Two at a time: the refused one's rule is used up by it, and the next waits before its effect.
    stage.downstream.control(json!({ "status": 422, "times": 1 })).await;
    stage.downstream.control(json!({ "delay_ms_before_effect": 1500 })).await;
    stage.pause(false).await;
    stage.ends(&steps[0], "failed_permanent").await;
    stage.phase(&steps[1], "sent").await;
    for step in &steps[2..] {
        assert_eq!(stage.world.status(step).await.1, "held");
    }
    stage.ends(&steps[1], "applied").await;
    for step in &steps[2..] {
        stage.rejected_for(step, &steps[1]).await;
    }
    assert_eq!((stage.downstream.total().await, calls(&stage).await), (1, 2));
    roles.stop().await;
}

/// An unknown one keeps them held; what a person finds out about it decides about them.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_and_they_stay_held_until_somebody_knows() {
    for (finding, next) in
        [("--applied T-1", "rejected"), ("--not-applied", "applied"), ("--compensated", "rejected")]
    {
        let mut stage = Stage::bare().await;
        stage.tool = "tickets.blind".to_owned();
        let contract = blind(&stage.downstream.url).timeout(super::PATIENT).text();
        stage.world.contract(&contract).await;
        stage.activate(&contract).await;
        let roles = stage.run();
        let steps = row_of(&stage, 3).await;
        stage.downstream.control(json!({ "drop_before_effect": true, "times": 1 })).await;
        stage.pause(false).await;
        stage.ends("s0", "unknown").await;
        stage.quiet().await;
        for step in &steps[1..] {
            assert_eq!(stage.world.status(step).await.1, "held", "{finding}");
        }
        let long_ago = "update oncebox.operations set attempts_over_at = attempts_over_at - interval '1 hour', \
            updated_at = updated_at - interval '1 hour' where status = 'unknown'";
        stage.execute(long_ago).await;
        stage
            .does(&format!("ops resolve acme:test:run:s0 {finding} --by ann --reason seen --json"));
        if next == "rejected" {
            stage.rejected_for("s1", "s0").await;
            stage.rejected_for("s2", "s0").await;
            assert_eq!(stage.downstream.total().await, 0, "{finding}");
        } else {
            stage.ends("s1", "applied").await;
            stage.rejected_for("s2", "s1").await;
            assert_eq!(stage.downstream.total().await, 1, "{finding}");
        }
        roles.stop().await;
    }
}

/// Not allowed, or not valid for the downstream: no effect, and the next goes on.
#[tokio::test(flavor = "multi_thread")]
async fn rejected_and_the_next_oldest_goes_on() {
    let stage = Stage::new(|contract| contract.granted()).await;
    stage.execute(super::GRANT).await;
    let by = |step: &str, actor: &str| oncebox::ingress::Submission {
        actor: Some(actor.to_owned()),
        ..stage.asking(step, "s")
    };
    // The older one is nobody's whom the grants know; both are there before a worker is.
    for (step, actor) in [("a", "eve"), ("b", "bob")] {
        stage.through(crate::support::doors::Door::Rust, &by(step, actor)).await;
    }
    let roles = stage.run_with("relay,worker");
    let record = stage.ends("a", "rejected").await;
    assert_eq!(record.reason.as_deref(), Some("not_authorized"));
    stage.ends("b", "applied").await;
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}

/// Its worker is killed while it runs: it is recovered under its own key, with the others held.
#[tokio::test(flavor = "multi_thread")]
async fn recovered_and_the_others_are_rejected() {
    let stage = Stage::bare().await;
    let quick = crate::support::contracts::deduplicating(&stage.downstream.url)
        .timeout("900ms")
        .more(kit::QUICK);
    kit::contract(&stage.world, &quick.text()).await;
    let roles = stage.world.run_with("relay,maintain", kit::MARGIN, Default::default());
    let mut first = kit::worker(&stage.world, "w");
    stage.under_way("a").await;
    stage.submit_held("b").await;
    first.kill();
    // Nobody works: the lease ends, and the twin stays where it is.
    eventually("the lease has run out", 20, async || {
        let over = "select count(*) from oncebox.operations where lease_until < now()";
        (stage.world.count(over).await == 1).then_some(())
    })
    .await;
    assert_eq!(stage.world.status("b").await.1, "held");
    stage.pause(false).await;
    let _second = kit::worker(&stage.world, "w");
    stage.ends("a", "applied").await;
    stage.rejected_for("b", "a").await;
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}

/// Parked is not ended: a person looks, and the twin waits.
#[tokio::test(flavor = "multi_thread")]
async fn parked_and_they_stay_held() {
    let stage = Stage::new(|contract| contract).await;
    let roles = stage.run();
    stage.under_way("a").await;
    stage.submit_held("b").await;
    let parked = "update oncebox.operations set phase = 'parked', reason = 'worker_lost', owner = null, \
        lease_until = null, claim_epoch = claim_epoch + 1, first_sent_at = null, attempts = 0, attempts_over_at = null \
        where operation_key = 'acme:test:run:a'";
    stage.execute(parked).await;
    stage.refuse(422).await;
    stage.pause(false).await;
    stage.quiet().await;
    assert_eq!(stage.world.status("b").await.1, "held");
    assert_eq!(stage.world.status("a").await.1, "parked");
    stage.does("ops retry acme:test:run:a --by ann --reason repaired --json");
    stage.ends("a", "applied").await;
    stage.rejected_for("b", "a").await;
    roles.stop().await;
}
