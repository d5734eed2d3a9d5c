//! Two operations never wait for each other: whoever waits, for its order or for a twin, waits for
//! somebody who goes on without it.

use std::time::Duration;

use oncebox::domain::operation::Timestamp;
use oncebox::ingress::{Publisher, Submission};
use serde_json::json;
use sqlx::Executor as _;

use super::{Stage, key};
use crate::support::contracts::ContractText;
use crate::support::doors::Door;
use crate::support::eventually;

/// Far away, and before the year 9000.
const LATER: Timestamp = Timestamp(32_503_680_000_000_000);

fn ordered(submission: Submission, ordering_key: &str) -> Submission {
    Submission { ordering_key: Some(ordering_key.to_owned()), ..submission }
}

fn distinct(submission: Submission, older: &str) -> Submission {
    Submission { distinct_from: Some(key(older)), ..submission }
}

/// The later one of an ordering key is delivered first. It waits for its turn, and holds nobody
/// meanwhile; when its turn comes, the one before it was applied.
#[tokio::test(flavor = "multi_thread")]
async fn twins_of_one_ordering_key_whichever_comes_first() {
    for door in Door::BOTH {
        for first in ["a", "b"] {
            let stage = Stage::new(|contract| contract).await;
            for step in ["a", "b"] {
                stage.keep(door, &ordered(stage.asking(step, "s"), "k")).await;
            }
            let roles = stage.run_with("relay,worker");
            stage.pause(true).await;
            let second = if first == "a" { "b" } else { "a" };
            stage.deliver(first).await;
            if first == "a" {
                stage.phase("a", "sent").await;
            } else {
                waits(&stage, "b").await;
            }
            stage.deliver(second).await;
            stage.phase("a", "sent").await;
            waits(&stage, "b").await;
            stage.pause(false).await;
            stage.ends("a", "applied").await;
            stage.rejected_for("b", "a").await;
            assert_eq!(stage.downstream.total().await, 1, "{door:?} {first}");
            roles.stop().await;
        }
    }
}

async fn waits(stage: &Stage, step: &str) {
    let waiting =
        "select count(*) from oncebox.operations where waiting_for_order and phase = 'queued'";
    eventually(&format!("{step} waits for its turn"), 20, async || {
        (stage.world.count(waiting).await == 1).then_some(())
    })
    .await;
}

/// Submitted in one call whose order is not that of their keys: ages follow the order numbers.
#[tokio::test(flavor = "multi_thread")]
async fn twins_of_one_ordering_key_in_one_call() {
    let stage = Stage::new(|contract| contract).await;
    let both = [
        ordered(stage.asking("z", "s"), "k"),
        ordered(stage.asking("a", "s"), "k"),
        ordered(stage.asking("b", "s"), "k"),
    ];
    let mut application = stage.world.connect().await;
    application.execute("begin").await.unwrap();
    Publisher::default().submit_many(&mut application, &both).await.unwrap();
    application.execute("commit").await.unwrap();
    let follows = "select count(*) from oncebox.operations o join oncebox.operations p \
        on o.order_number < p.order_number and (o.opened_at, o.operation_id) > (p.opened_at, p.operation_id)";
    assert_eq!(stage.world.count(follows).await, 0);
    let roles = stage.run_with("relay,worker");
    stage.world.settled(30).await;
    stage.ends("z", "applied").await;
    roles.stop().await;
}

/// a and d ask for one thing, b and c for another; a stands before b, c before d. Whichever is
/// delivered first, they all end without anybody's help.
#[tokio::test(flavor = "multi_thread")]
async fn twins_across_two_ordering_keys() {
    let deliveries =
        [["a", "b", "c", "d"], ["d", "c", "b", "a"], ["d", "b", "a", "c"], ["b", "d", "c", "a"]];
    for door in Door::BOTH {
        for order in deliveries {
            let stage = Stage::new(|contract| contract).await;
            for (step, subject, ordering_key) in
                [("a", "one", "k1"), ("c", "two", "k2"), ("b", "two", "k1"), ("d", "one", "k2")]
            {
                let submission = ordered(stage.asking(step, subject), ordering_key);
                stage.keep(door, &submission).await;
            }
            let roles = stage.run_with("relay,worker");
            for step in order {
                stage.deliver(step).await;
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
            stage.world.settled(20).await;
            stage.ends("a", "applied").await;
            stage.ends("c", "applied").await;
            roles.stop().await;
        }
    }
}

/// Its time has not come: it holds nobody, whether it is new or was opened again.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_due_holds_nobody() {
    let stage = Stage::new(|contract| contract).await;
    let roles = stage.run_with("relay,worker");
    let later = Submission { not_before: Some(LATER), ..stage.asking("a", "s") };
    stage.through(Door::Rust, &later).await;
    stage.submit("b").await;
    stage.ends("b", "applied").await;
    roles.stop().await;

    let stage = Stage::new(ContractText::granted).await;
    let roles = stage.run_with("relay,worker");
    let by = |step: &str, actor: &str| Submission {
        actor: Some(actor.to_owned()),
        ..stage.asking(step, "s")
    };
    stage.through(Door::Rust, &by("a", "bob")).await;
    let record = stage.ends("a", "rejected").await;
    assert_eq!(record.reason.as_deref(), Some("not_authorized"));
    stage.execute(super::GRANT).await;
    stage.through(Door::Rust, &Submission { not_before: Some(LATER), ..by("a", "bob") }).await;
    stage.through(Door::Rust, &by("b", "bob")).await;
    stage.ends("b", "applied").await;
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}

/// Age counts from the last opening: what was opened again is the younger one, though it was claimed
/// once.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_opened_again_is_young() {
    let stage = Stage::new(ContractText::granted).await;
    let roles = stage.run_with("relay,worker");
    let by = |step: &str| Submission { actor: Some("bob".to_owned()), ..stage.asking(step, "s") };
    stage.through(Door::Rust, &by("a")).await;
    stage.ends("a", "rejected").await;
    stage.execute(super::GRANT).await;
    stage.pause(true).await;
    stage.keep(Door::Rust, &by("b")).await;
    stage.through(Door::Rust, &by("a")).await;
    stage.held("a").await;
    assert_eq!(stage.behind("a").await, Some(key("b")));
    stage.deliver("b").await;
    stage.phase("b", "sent").await;
    stage.pause(false).await;
    stage.ends("b", "applied").await;
    stage.rejected_for("a", "b").await;
    roles.stop().await;
}

/// The one that goes is never held again: not behind one that is knowingly distinct from it and goes
/// beside it, and not behind an older one that only now shows what it asks for.
#[tokio::test(flavor = "multi_thread")]
async fn who_goes_is_held_behind_nobody() {
    let stage = Stage::new(|contract| contract).await;
    let roles = stage.run_with("relay,worker");
    // Told to come later, so that it has been sent nothing and is claimed again.
    stage.downstream.control(json!({ "status": 429, "retry_after": "1", "times": 1 })).await;
    stage.submit("a").await;
    stage.phase("a", "retry_scheduled").await;
    stage.through(Door::Rust, &distinct(stage.asking("b", "s"), "a")).await;
    stage.ends("b", "applied").await;
    stage.ends("a", "applied").await;
    assert_eq!(stage.downstream.total().await, 2);
    roles.stop().await;

    // From SQL nobody knows what it asks for before its first claim.
    let stage = Stage::new(|contract| contract).await;
    stage.keep(Door::Sql, &stage.asking("old", "s")).await;
    let roles = stage.run_with("relay,worker");
    stage.downstream.control(json!({ "status": 429, "retry_after": "1", "times": 1 })).await;
    stage.submit("young").await;
    stage.phase("young", "retry_scheduled").await;
    stage.deliver("old").await;
    stage.held("old").await;
    stage.ends("young", "applied").await;
    stage.rejected_for("old", "young").await;
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}

/// c was held behind b, and b then behind a, which nobody could see before: when a is applied, neither
/// goes.
#[tokio::test(flavor = "multi_thread")]
async fn all_that_wait_end_with_the_one_that_was_applied() {
    let stage = Stage::new(|contract| contract).await;
    for (step, door) in [("a", Door::Sql), ("b", Door::Rust), ("c", Door::Rust)] {
        stage.keep(door, &stage.asking(step, "s")).await;
    }
    let roles = stage.run_with("relay,worker");
    stage.pause(true).await;
    stage.deliver("c").await;
    stage.held("c").await;
    assert_eq!(stage.behind("c").await, Some(key("b")));
    stage.deliver("a").await;
    stage.phase("a", "sent").await;
    stage.deliver("b").await;
    stage.held("b").await;
    stage.pause(false).await;
    stage.ends("a", "applied").await;
    stage.rejected_for("b", "a").await;
    stage.rejected_for("c", "a").await;
    assert_eq!(stage.downstream.total().await, 1);
    roles.stop().await;
}

/// In one batch, where the tables do not show yet who goes: c is distinct from b and not from a.
#[tokio::test(flavor = "multi_thread")]
async fn each_that_goes_in_a_batch_holds_the_rest_of_it() {
    let stage = Stage::new(|contract| contract).await;
    let relay = stage.run_with("relay");
    stage.through(Door::Sql, &stage.asking("a", "s")).await;
    stage.through(Door::Sql, &distinct(stage.asking("b", "s"), "a")).await;
    stage.through(Door::Sql, &distinct(stage.asking("c", "s"), "b")).await;
    eventually("all three are published", 20, async || {
        (stage.world.count("select count(*) from oncebox.outbox").await == 0).then_some(())
    })
    .await;
    stage.pause(true).await;
    let worker = stage.run_with("worker");
    stage.held("c").await;
    assert_eq!(stage.behind("c").await, Some(key("a")));
    stage.phase("a", "sent").await;
    stage.phase("b", "sent").await;
    stage.pause(false).await;
    for step in ["a", "b"] {
        stage.ends(step, "applied").await;
    }
    stage.rejected_for("c", "a").await;
    assert_eq!(stage.downstream.total().await, 2);
    worker.stop().await;
    relay.stop().await;
}

/// Everything at once, by chance: both doors, ordering keys, times, words that a second effect is
/// meant, refusals and put-offs, releases. All end, long before anybody has waited for a day, and no
/// two twins were under way at once unless somebody said so.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_comes_together_ends() {
    let stage = Stage::new(|contract| contract).await;
    stage.execute(WATCH).await;
    let faults = [json!({ "status": 422, "every": 7 }), json!({ "status": 429, "every": 5 })];
    for fault in faults {
        stage.downstream.control(fault).await;
    }
    stage.downstream.control(json!({ "delay_ms_before_effect": 15 })).await;
    let roles = [stage.run_with("relay,worker"), stage.run_with("worker")];
    let submitters = (0..4).map(async |submitter| {
        for number in 0..40 {
            let submission = any(&stage, submitter, number);
            let door = Door::BOTH[dice(2)];
            stage.through(door, &submission).await;
        }
    });
    let released = async {
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let held: Option<String> = sqlx::query_scalar(
                "select operation_key from oncebox.operations where phase = 'held' order by random() limit 1",
            )
            .fetch_optional(&mut stage.world.connect().await)
            .await
            .unwrap();
            if let Some(held) = held {
                // It may have gone on meanwhile.
                drop(stage.command(&format!("ops release {held} --by ann")));
            }
        }
    };
    tokio::join!(futures::future::join_all(submitters), released);
    stage.world.settled(90).await;
    let unexplained = "select count(*) from oncebox.operations where not (status = 'applied' \
        or (status = 'failed_permanent' and reason = 'refused') \
        or (status = 'rejected' and reason = 'suspected_twin' and first_sent_at is null))";
    assert_eq!(stage.world.count(unexplained).await, 0);
    assert_eq!(stage.world.count("select count(*) from public.together").await, 0, "two at once");
    assert_eq!(stage.downstream.most_per_key().await, 1);
    let applied = "select count(*) from oncebox.operations where status = 'applied'";
    assert_eq!(stage.world.count(applied).await.unsigned_abs(), stage.downstream.total().await);
    for role in roles {
        role.stop().await;
    }
}

/// Notes each claim of an operation while a twin of it is under way that nobody called distinct.
const WATCH: &str = "create table public.together (one uuid, other uuid); \
    create function public.watch() returns trigger language plpgsql as $$ begin \
      insert into public.together select new.operation_id, o.operation_id from oncebox.operations o \
      where o.twin_digest = new.twin_digest and o.operation_id <> new.operation_id \
        and o.status in ('pending', 'unknown') and (o.phase is null or o.phase in ('claimed', 'sent', 'retry_scheduled')) \
        and o.operation_key is distinct from new.distinct_from and new.operation_key is distinct from o.distinct_from \
        and not exists (select from oncebox.operation_events e where e.event = 'resolved' and e.operation_id in (new.operation_id, o.operation_id)); \
      return null; end $$; \
    create trigger watch after update on oncebox.operations for each row \
      when (new.phase in ('claimed', 'sent') and old.phase in ('queued', 'held')) execute function public.watch()";

fn dice(sides: usize) -> usize {
    usize::try_from(uuid::Uuid::new_v4().as_u128() % u128::try_from(sides).unwrap()).unwrap()
}

fn any(stage: &Stage, submitter: usize, number: usize) -> Submission {
    let step = |number: usize| format!("{submitter}-{number}");
    let mut submission = stage.asking(&step(number), &format!("s{}", dice(4)));
    match dice(6) {
        0 | 1 => submission.ordering_key = Some(format!("k{}", dice(3))),
        2 => {
            let now = time::OffsetDateTime::now_utc().unix_timestamp_nanos() / 1000;
            let ahead = i64::try_from(dice(3_000_000)).unwrap();
            submission.not_before = Some(Timestamp(i64::try_from(now).unwrap() + ahead));
        }
        3 if number > 0 => submission.distinct_from = Some(key(&step(dice(number)))),
        _ => {}
    }
    submission
}
