//! Effects of one ordering key happen one at a time and in commit order; a head that is stuck stops
//! its own key only, and a waiter's wake-up is never lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use oncebox::domain::attempt::Ambiguity;
use oncebox::domain::verbs::{self, Person};
use oncebox::ingress::Submission;
use oncebox::runtime::RustTools;
use oncebox::store;
use oncebox::tool::{Call, Gate};
use sqlx::Executor as _;

use super::kit::{self, Scripted};
use crate::support::{eventually, world::World};

const KEYS: usize = 6;
const EACH: usize = 20;

/// `n` is `<ordering key>-<number>`.
fn ordered(world: &World, key: usize, number: usize) -> Submission {
    let step = format!("{key}-{number}");
    let submission = kit::submission(world, "rust.one", &step);
    Submission { ordering_key: Some(format!("k{key}")), ..submission }
}

#[derive(Default)]
struct Seen {
    effects: BTreeMap<String, Vec<usize>>,
    running: BTreeMap<String, usize>,
    overlapped: bool,
}

/// A sample that differs from run to run: what the test promises may not depend on it.
fn dice(sides: u128) -> u128 {
    uuid::Uuid::new_v4().as_u128() % sides
}

#[tokio::test(flavor = "multi_thread")]
async fn effects_follow_the_commits_through_retries_and_several_workers() {
    let world = World::new().await;
    let retry = "retry: {initial: 20ms, max: 60ms}";
    world.contract(&kit::rust_contract("rust.one", "read", retry)).await;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let book = Arc::clone(&seen);
    let tool = Scripted(move |call: Call, gate: Gate| {
        let book = Arc::clone(&book);
        async move {
            let text = kit::n(&call);
            let (key, number) = text.split_once('-').unwrap();
            let sending = match gate.open().await {
                Ok(sending) => sending,
                Err(closed) => return closed,
            };
            {
                let mut book = book.lock().unwrap();
                let running = book.running.entry(key.to_owned()).or_default();
                *running += 1;
                book.overlapped |= *book.running.get(key).unwrap() > 1;
            }
            tokio::time::sleep(Duration::from_millis(u64::try_from(dice(8)).unwrap())).await;
            let mut book = book.lock().unwrap();
            *book.running.get_mut(key).unwrap() -= 1;
            match dice(5) {
                0 => sending.not_now(None),
                1 => sending.ambiguous(Ambiguity::TimedOut),
                _ => {
                    book.effects.entry(key.to_owned()).or_default().push(number.parse().unwrap());
                    kit::applied(sending, &call)
                }
            }
        }
    });
    let tools = RustTools::default().with("rust.one", "1", Arc::new(tool));
    // No maintain: what a settle does not wake stays asleep.
    let roles: Vec<_> = ["relay,worker", "relay,worker", "worker"]
        .iter()
        .map(|roles| world.run_with(roles, &[], tools.clone()))
        .collect();
    let submitters = (0..KEYS).map(async |key| {
        let mut connection = world.connect().await;
        let publisher = oncebox::ingress::Publisher::default();
        for number in 0..EACH {
            connection.execute("begin").await.unwrap();
            publisher.submit(&mut connection, &ordered(&world, key, number)).await.unwrap();
            connection.execute("commit").await.unwrap();
        }
    });
    futures::future::join_all(submitters).await;
    world.settled(60).await;
    let applied = "select count(*) from oncebox.operations where status = 'applied'";
    assert_eq!(world.count(applied).await, i64::try_from(KEYS * EACH).unwrap());
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert!(!seen.overlapped, "two of one key ran at once");
    for (key, numbers) in seen.effects {
        assert_eq!(numbers, (0..EACH).collect::<Vec<_>>(), "key {key}");
    }
    for role in roles {
        role.stop().await;
    }
}

#[tokio::test]
async fn an_unknown_head_stops_its_own_key_until_it_is_released() {
    let world = World::new().await;
    world.contract(&kit::blind_rust_contract("rust.one", kit::RETRY)).await;
    let tool = Scripted(|call: Call, gate: Gate| async move {
        let sending = match gate.open().await {
            Ok(sending) => sending,
            Err(closed) => return closed,
        };
        match kit::n(&call).as_str() {
            "0-0" => sending.ambiguous(Ambiguity::TimedOut),
            _ => kit::applied(sending, &call),
        }
    });
    let tools = RustTools::default().with("rust.one", "1", Arc::new(tool));
    let roles = world.run_with("relay,worker,maintain", &[], tools);
    for number in 0..4 {
        for key in 0..2 {
            world.submit(&ordered(&world, key, number)).await.unwrap();
        }
    }
    kit::ends(&world, "0-0", "unknown").await;
    for number in 0..4 {
        kit::ends(&world, &format!("1-{number}"), "applied").await;
    }
    let waiting = "select count(*) from oncebox.operations where waiting_for_order and phase = 'queued' and reason = 'waiting_for_order'";
    eventually("the others of its key wait", 20, async || {
        (world.count(waiting).await == 3).then_some(())
    })
    .await;
    // Their messages are acked: nothing of them is in the outbox, and none was claimed.
    assert_eq!(world.count("select count(*) from oncebox.outbox").await, 0);
    assert_eq!(kit::record(&world, "0-1").await.epoch, 0);
    let head = kit::record(&world, "0-0").await.id;
    let mut connection = world.connect().await;
    connection.execute("begin").await.unwrap();
    let locked = store::lock_all(&mut connection, &[head]).await.unwrap();
    let by = Person { name: "ann".into(), reason: "the rest does not depend on it".into() };
    let step = verbs::release(&locked[0].operation, locked[0].now, &by).unwrap();
    store::write(&mut connection, &[&step]).await.unwrap();
    connection.execute("commit").await.unwrap();
    for number in 1..4 {
        kit::ends(&world, &format!("0-{number}"), "applied").await;
    }
    assert_eq!(kit::record(&world, "0-0").await.status, "unknown");
    roles.stop().await;
}
