//! A rejected operation that was never sent is opened again by the same submission; one that never
//! was a valid request, by any. Nothing else is.

use oncebox::domain::lifecycle::State;
use oncebox::domain::operation::Timestamp;
use oncebox::domain::reason::Reason;
use oncebox::ingress::Submission;
use sqlx::Executor as _;

use super::{OTHER, REFUND, asking, refund, world};
use crate::support::doors::{Door, column, everything, force};
use crate::support::world::World;

/// A record that used up some of everything before it was rejected without a send.
async fn rejected(world: &World, door: Door, step: &str, reason: Reason) {
    door.submit(world, &refund(world, step)).await.unwrap();
    force(world, step, State::Rejected, Some(reason), false).await;
    world
        .connect()
        .await
        .execute("update oncebox.operations set attempts = 3, deferrals = 4, lost_claims = 2, sweeps = 5, claim_epoch = 6; delete from oncebox.outbox")
        .await
        .unwrap();
}

async fn messages(world: &World) -> i64 {
    world.count("select count(*) from oncebox.outbox x join oncebox.operations o using (operation_id) where x.due_at <= clock_timestamp() and x.queue = o.tool_name").await
}

#[tokio::test]
async fn the_same_submission_opens_it_with_a_new_message_a_new_actor_and_attempts_from_zero() {
    for door in Door::BOTH {
        let world = world().await;
        rejected(&world, door, "s1", Reason::NotAuthorized).await;
        let id = column(&world, "s1", "o.operation_id").await;
        let again = Submission {
            actor: Some("bob".into()),
            metadata: Some(r#"{"why":"allowed now"}"#.into()),
            ..refund(&world, "s1")
        };
        let told = door.submit(&world, &again).await.unwrap();
        assert_eq!(told["status"], "in_flight", "{door:?}");
        assert_eq!(told["operation_id"].as_str(), id.as_deref(), "{door:?}: the same record");
        let facts = "concat_ws(' ', status, phase, coalesce(reason, '-'), attempts, deferrals, lost_claims, sweeps, \
             actor, metadata, claim_epoch, opened_at > created_at, queued_at >= opened_at)";
        assert_eq!(
            column(&world, "s1", facts).await.unwrap(),
            r#"pending queued - 0 0 0 0 bob {"why":"allowed now"} 6 t t"#,
            "{door:?}: the fencing token goes on"
        );
        assert_eq!(messages(&world).await, 1, "{door:?}");
        assert_eq!(world.trace("s1").await.last().map(String::as_str), Some("proposed"));
    }
}

#[tokio::test]
async fn another_request_does_not_open_it() {
    for door in Door::BOTH {
        let world = world().await;
        rejected(&world, door, "s1", Reason::NotAuthorized).await;
        let before = everything(&world).await;
        let told = door.submit(&world, &asking(&world, "s1", OTHER)).await.unwrap();
        assert_eq!(told["reason"], "operation_key_reused_with_different_request", "{door:?}");
        assert_eq!(everything(&world).await, before, "{door:?}");
    }
}

#[tokio::test]
async fn what_was_sent_stays_rejected() {
    for door in Door::BOTH {
        let world = world().await;
        door.submit(&world, &refund(&world, "s1")).await.unwrap();
        for reason in [Reason::NotAuthorized, Reason::InvalidArguments] {
            force(&world, "s1", State::Rejected, Some(reason), true).await;
            let before = everything(&world).await;
            let told = door.submit(&world, &refund(&world, "s1")).await.unwrap();
            assert_eq!(
                (&told["status"], &told["safe_to_repeat"]),
                (&"rejected".into(), &false.into())
            );
            assert_eq!(everything(&world).await, before, "{door:?}");
        }
    }
}

#[tokio::test]
async fn where_no_valid_request_ever_stood_new_arguments_open_it() {
    for door in Door::BOTH {
        let world = world().await;
        Door::Sql.submit(&world, &asking(&world, "s1", r#"{"subject":7}"#)).await.unwrap();
        force(&world, "s1", State::Rejected, Some(Reason::InvalidArguments), false).await;
        let told = door.submit(&world, &refund(&world, "s1")).await.unwrap();
        assert_eq!(told["status"], "in_flight", "{door:?}");
        assert_eq!(column(&world, "s1", "arguments").await.as_deref(), Some(REFUND));
        let fingerprint = column(&world, "s1", "request_fingerprint").await;
        assert_eq!(
            fingerprint.is_some(),
            door == Door::Rust,
            "the worker computes what SQL leaves out"
        );
        // From now on a request stands here.
        let other = door.submit(&world, &asking(&world, "s1", OTHER)).await.unwrap();
        assert_eq!(other["reason"], "operation_key_reused_with_different_request", "{door:?}");
    }
}

#[tokio::test]
async fn invalid_arguments_that_were_a_request_once_are_not_replaced() {
    for door in Door::BOTH {
        let world = world().await;
        Door::Rust.submit(&world, &refund(&world, "s1")).await.unwrap();
        force(&world, "s1", State::Rejected, Some(Reason::InvalidArguments), false).await;
        let told = door.submit(&world, &asking(&world, "s1", OTHER)).await.unwrap();
        assert_eq!(told["reason"], "operation_key_reused_with_different_request", "{door:?}");
    }
}

#[tokio::test]
async fn many_at_once_open_it_once() {
    for door in Door::BOTH {
        let world = world().await;
        rejected(&world, door, "s1", Reason::PreconditionFailed).await;
        let all = (0..12).map(|n| {
            let submission = Submission { actor: Some(format!("a{n}")), ..refund(&world, "s1") };
            let world = &world;
            async move { door.submit(world, &submission).await.unwrap() }
        });
        let told = futures::future::join_all(all).await;
        assert!(told.iter().all(|told| told["status"] == "in_flight"), "{door:?}");
        assert_eq!(messages(&world).await, 1, "{door:?}");
        let opened = world
            .count(
                "select count(*) from oncebox.operation_events where detail->>'reopened' = 'true'",
            )
            .await;
        assert_eq!(opened, 1, "{door:?}");
    }
}

#[tokio::test]
async fn a_reopening_that_rolls_back_leaves_the_rejection() {
    for door in Door::BOTH {
        let world = world().await;
        rejected(&world, door, "s1", Reason::NotAuthorized).await;
        let before = everything(&world).await;
        let mut application = world.connect().await;
        application.execute("begin").await.unwrap();
        door.ask(&mut application, &refund(&world, "s1")).await.unwrap();
        application.execute("rollback").await.unwrap();
        assert_eq!(everything(&world).await, before, "{door:?}");
    }
}

#[tokio::test]
async fn its_order_is_counted_from_the_reopening() {
    for door in Door::BOTH {
        let world = world().await;
        let ordered = |step| Submission { ordering_key: Some("o".into()), ..refund(&world, step) };
        for step in ["s1", "s2"] {
            door.submit(&world, &ordered(step)).await.unwrap();
        }
        force(&world, "s1", State::Rejected, Some(Reason::NotAuthorized), false).await;
        door.submit(&world, &ordered("s1")).await.unwrap();
        let number = async |step| {
            column(&world, step, "order_number").await.unwrap().parse::<i64>().unwrap()
        };
        assert!(
            number("s1").await > number("s2").await,
            "{door:?}: behind what went ahead meanwhile"
        );
        // Opened by a submission that asks for a time, it asks for no place.
        force(&world, "s1", State::Rejected, Some(Reason::NotAuthorized), false).await;
        let later = Submission {
            not_before: Some(Timestamp(4_102_444_800_000_000)),
            ..refund(&world, "s1")
        };
        door.submit(&world, &later).await.unwrap();
        let place = "concat_ws(' ', ordering_key is null, order_number is null, due_at > now() + interval '1 year')";
        assert_eq!(column(&world, "s1", place).await.as_deref(), Some("t t t"), "{door:?}");
    }
}

#[tokio::test]
async fn a_suspected_twin_is_told_so_and_stays() {
    for door in Door::BOTH {
        let world = world().await;
        rejected(&world, door, "s1", Reason::SuspectedTwin).await;
        let before = everything(&world).await;
        let told = door.submit(&world, &refund(&world, "s1")).await.unwrap();
        assert_eq!(
            (&told["reason"], &told["next_action"]),
            (&"suspected_twin".into(), &"inspect_operation".into())
        );
        assert_eq!(everything(&world).await, before, "{door:?}");
    }
}
