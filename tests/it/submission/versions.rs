//! Which contract version a submission gets, and which it is compared under. A tool or version that
//! the registry does not know is refused by every door, without a record.

use oncebox::domain::lifecycle::State;
use oncebox::ingress::Submission;
use oncebox::store;

use super::{NOWHERE, OTHER, asking, refund, world};
use crate::support::doors::{Door, column, everything, force};
use crate::support::downstream::tickets;
use crate::support::world::World;

async fn with_version_two() -> World {
    let world = world().await;
    world.contract(&tickets(NOWHERE, "").replace(r#"version: "1""#, r#"version: "2""#)).await;
    world
}

fn naming(submission: Submission, version: &str) -> Submission {
    Submission { tool_version: Some(version.into()), ..submission }
}

#[tokio::test]
async fn no_version_named_means_the_current_one_and_later_the_records_own() {
    for door in Door::BOTH {
        let world = with_version_two().await;
        let told = door.submit(&world, &refund(&world, "s1")).await.unwrap();
        assert_eq!(told["tool_version"], "1", "{door:?}: the very first version is current");
        let activated =
            store::activate(&mut world.connect().await, "tickets.create", "2").await.unwrap();
        assert!(activated);
        let again = door.submit(&world, &refund(&world, "s1")).await.unwrap();
        assert_eq!((&again["status"], &again["tool_version"]), (&"in_flight".into(), &"1".into()));
        let new = door.submit(&world, &refund(&world, "s2")).await.unwrap();
        assert_eq!(new["tool_version"], "2", "{door:?}");
    }
}

#[tokio::test]
async fn a_named_version_is_taken_and_meets_itself() {
    for door in Door::BOTH {
        let world = with_version_two().await;
        let two = naming(refund(&world, "s1"), "2");
        assert_eq!(door.submit(&world, &two).await.unwrap()["tool_version"], "2");
        assert_eq!(door.submit(&world, &two).await.unwrap()["status"], "in_flight");
        let unnamed = door.submit(&world, &refund(&world, "s1")).await.unwrap();
        assert_eq!(unnamed["status"], "in_flight", "{door:?}: the record's version counts");
    }
}

#[tokio::test]
async fn another_named_version_is_replayed_only_by_rust_and_only_once_applied() {
    for door in Door::BOTH {
        let world = with_version_two().await;
        door.submit(&world, &refund(&world, "s1")).await.unwrap();
        let two = naming(refund(&world, "s1"), "2");
        for state in State::ALL {
            force(&world, "s1", state, None, true).await;
            let before = everything(&world).await;
            let told = door.submit(&world, &two).await.unwrap();
            let replayed = door == Door::Rust && state == State::Applied;
            let expected = if replayed { "replayed" } else { "rejected" };
            assert_eq!(told["status"], expected, "{door:?} {state:?}");
            assert_eq!(told["tool_version"], "1", "the record's version is told");
            assert_eq!(everything(&world).await, before);
        }
        force(&world, "s1", State::Applied, None, true).await;
        let other = door.submit(&world, &naming(asking(&world, "s1", OTHER), "2")).await.unwrap();
        assert_eq!(other["status"], "rejected", "{door:?}");
    }
}

#[tokio::test]
async fn what_is_not_registered_is_refused_and_leaves_no_record() {
    let world = world().await;
    for door in Door::BOTH {
        for submission in [
            world.submission("tickets.delete", "s1", "{}"),
            naming(refund(&world, "s1"), "9"),
            world.submission("mail.send", "s1", "{}"),
            world.submission("", "s1", "{}"),
        ] {
            let refused = door.submit(&world, &submission).await.unwrap_err();
            assert!(refused.text.contains("not registered"), "{door:?}: {}", refused.text);
            assert!(refused.text.contains("activate"), "{door:?}: says what to do");
        }
    }
    assert!(everything(&world).await.is_empty());
}

#[tokio::test]
async fn a_tool_without_a_current_version_serves_those_who_name_one() {
    let world = world().await;
    sqlx::query("update oncebox.contracts set is_current = false")
        .execute(&mut world.connect().await)
        .await
        .unwrap();
    for door in Door::BOTH {
        let step = format!("{door:?}");
        let refused = door.submit(&world, &refund(&world, &step)).await.unwrap_err();
        assert!(refused.text.contains("no current version"));
        let told = door.submit(&world, &naming(refund(&world, &step), "1")).await.unwrap();
        assert_eq!(told["status"], "in_flight");
        let again = door.submit(&world, &refund(&world, &step)).await.unwrap();
        assert_eq!(
            again["status"], "in_flight",
            "{door:?}: the record's version needs no current one"
        );
        force(&world, &step, State::Rejected, None, false).await;
        let reopened = door.submit(&world, &refund(&world, &step)).await.unwrap();
        assert_eq!(reopened["status"], "in_flight", "{door:?}: nor does reopening");
        assert_eq!(column(&world, &step, "phase").await.as_deref(), Some("queued"));
    }
}
