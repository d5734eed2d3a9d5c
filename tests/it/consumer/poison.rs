//! What cannot be understood, has no record or breaks its tool is set aside once, with its bytes and
//! a reason, and costs no neighbour anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oncebox::broker::Names;
use oncebox::runtime::RustTools;
use oncebox::tool::{Call, Gate};
use sqlx::Row as _;
use uuid::Uuid;

use super::kit::{self, Scripted};
use crate::raw_amqp::{self, RawChannel};
use crate::support::downstream::{Downstream, tickets};
use crate::support::{eventually, world::World};

#[tokio::test]
async fn a_message_that_cannot_be_understood_is_kept_once_and_the_good_one_behind_it_is_applied() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "")).await;
    kit::declare(&world, &["tickets.create"]).await;
    let roles = world.run("relay,worker");
    let exchange = Names::new(&world.prefix).unwrap().operations();
    let bad = bad_messages();
    for (name, properties, body) in &bad {
        let mut raw = RawChannel::open(&world.amqp);
        assert!(raw.publish(&exchange, "tickets.create", properties, body), "{name}");
        kit::submit(&world, "tickets.create", name).await;
        eventually(&format!("the good one behind {name}"), 10, async || {
            (world.status(name).await.0 == "applied").then_some(())
        })
        .await;
    }
    let kept =
        sqlx::query("select body, reason, copies, queue from oncebox.dead_letters order by at")
            .fetch_all(&mut world.connect().await)
            .await
            .unwrap();
    // The same bytes are one letter that counts its copies.
    let copies: i32 = kept.iter().map(|letter| letter.get::<i32, _>("copies")).sum();
    assert_eq!(usize::try_from(copies).unwrap(), bad.len());
    for (name, _, body) in &bad {
        let letter = kept.iter().find(|letter| letter.get::<Vec<u8>, _>("body") == *body);
        let letter = letter.unwrap_or_else(|| panic!("{name} is not kept byte for byte"));
        assert!(!letter.get::<String, _>("reason").is_empty(), "{name}");
        assert_eq!(letter.get::<String, _>("queue"), "tickets.create", "{name}");
    }
    assert_eq!(downstream.total().await, u64::try_from(bad.len()).unwrap());
    roles.stop().await;
}

/// Name, properties and body of each message that must be parked.
fn bad_messages() -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    let key = |kind: &[u8]| {
        raw_amqp::with_headers(&[&raw_amqp::short("operation-key")[..], kind].concat())
    };
    let text = || key(&[&b"S"[..], &raw_amqp::long(b"k")].concat());
    let v1 = || b"{\"v\":1}".to_vec();
    vec![
        ("AM04", key(b"S\0\0\0\x02\xff\xfe"), v1()),
        ("AM05", key(b"V"), v1()),
        ("AM06", key(b"l\0\0\0\0\0\0\0\x2a"), v1()),
        ("AM07", key(b"t\x01"), v1()),
        ("AM08", key(b"x\0\0\0\x03abc"), v1()),
        ("AM12", text(), Vec::new()),
        ("AM13", text(), b"not json".to_vec()),
        ("AM14", text(), b"{\"v\":\"\xff\"}".to_vec()),
        ("AM17", text(), b"{\"amount\":1,\"amount\":100}".to_vec()),
        ("AM18", raw_amqp::with_headers(b""), v1()),
        ("AM23", with_timestamp(u64::MAX), v1()),
        ("FP35", text(), b"\xef\xbb\xbf{\"a\":1}".to_vec()),
        ("FP37", text(), b"{\"a\":1} {\"a\":2}".to_vec()),
        ("FP38", text(), b"{\"a\":NaN}".to_vec()),
        ("NUL", text(), b"{\"operation_id\":\"\\u0000\"}\0".to_vec()),
    ]
}

fn with_timestamp(seconds: u64) -> Vec<u8> {
    let mut properties = (raw_amqp::DELIVERY_MODE | raw_amqp::TIMESTAMP).to_be_bytes().to_vec();
    properties.push(2);
    properties.extend(seconds.to_be_bytes());
    properties
}

#[tokio::test]
async fn a_message_that_names_another_record_or_none_is_kept_and_claims_nothing() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "")).await;
    kit::declare(&world, &["tickets.create"]).await;
    let worker = world.run("worker");
    kit::submit(&world, "tickets.create", "s").await;
    let channel = kit::channel(&world).await;
    let id = kit::record(&world, "s").await.id;
    let key = "acme:test:run:s";
    let strangers = [
        ("identity_mismatch", kit::envelope_of(id, "other", key)),
        ("identity_mismatch", kit::envelope_of(id, "acme", "acme:test:run:t")),
        ("no_record", kit::envelope_of(Uuid::now_v7(), "acme", key)),
    ];
    for (_, body) in &strangers {
        kit::publish(&world, &channel, "tickets.create", body).await;
    }
    let all = "select count(*) from oncebox.dead_letters";
    eventually("all are kept", 20, async || (world.count(all).await == 3).then_some(())).await;
    for (reason, body) in &strangers {
        let kept: String =
            sqlx::query_scalar("select reason from oncebox.dead_letters where body = $1")
                .bind(body)
                .fetch_one(&mut world.connect().await)
                .await
                .unwrap();
        assert_eq!(kept, *reason);
    }
    let untouched = kit::record(&world, "s").await;
    assert_eq!((untouched.epoch, untouched.phase.as_deref()), (0, Some("queued")));
    assert_eq!(downstream.total().await, 0);
    kit::publish(&world, &channel, "tickets.create", &kit::envelope(&world, "s").await).await;
    kit::ends(&world, "s", "applied").await;
    worker.stop().await;
}

#[tokio::test]
async fn a_tool_that_panics_is_that_operations_failure_only() {
    let world = World::new().await;
    let more = format!(
        "{}
concurrency: {{process: 5}}",
        kit::RETRY
    );
    world.contract(&kit::rust_contract("rust.one", "read", &more)).await;
    let effects = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&effects);
    let tool = Scripted(move |call: Call, gate: Gate| {
        let counted = Arc::clone(&counted);
        async move {
            assert_ne!(kit::n(&call), "early", "panics before its gate, as ordered");
            let sending = match gate.open().await {
                Ok(sending) => sending,
                Err(closed) => return closed,
            };
            assert_ne!(kit::n(&call), "late", "panics behind its gate, as ordered");
            counted.fetch_add(1, Ordering::SeqCst);
            kit::applied(sending, &call)
        }
    });
    let tools = RustTools::default().with("rust.one", "1", Arc::new(tool));
    let good = (0..15).map(|n| format!("a{n}"));
    let steps = good.chain(["early".to_owned(), "late".to_owned()]);
    let steps = steps.chain((0..15).map(|n| format!("b{n}")));
    kit::submit_all(&world, "rust.one", steps).await;
    let roles = world.run_with("relay,worker,maintain", &[], tools);
    world.settled(40).await;
    assert_eq!(
        world.count("select count(*) from oncebox.operations where status = 'applied'").await,
        30
    );
    assert_eq!(effects.load(Ordering::SeqCst), 30);
    for (step, sent) in [("early", false), ("late", true)] {
        let record = kit::record(&world, step).await;
        assert_eq!(record.phase.as_deref(), Some("parked"), "{step}: {record:?}");
        assert_eq!(record.reason.as_deref(), Some("tool_panicked"), "{step}");
        assert_eq!((record.lost_claims, record.sent, record.owner), (5, sent, None), "{step}");
    }
    roles.stop().await;
}

#[tokio::test]
async fn an_operation_that_lost_three_workers_runs_with_nothing_beside_it() {
    let world = World::new().await;
    world.contract(&kit::rust_contract("rust.one", "read", kit::RETRY)).await;
    let running = Arc::new(AtomicU64::new(0));
    let beside = Arc::new(AtomicU64::new(u64::MAX));
    let (now, most) = (Arc::clone(&running), Arc::clone(&beside));
    let tool = Scripted(move |call: Call, gate: Gate| {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        async move {
            let sending = match gate.open().await {
                Ok(sending) => sending,
                Err(closed) => return closed,
            };
            now.fetch_add(1, Ordering::SeqCst);
            let heavy = kit::n(&call) == "heavy";
            if heavy {
                most.store(0, Ordering::SeqCst);
            }
            for _ in 0..if heavy { 50 } else { 10 } {
                if heavy {
                    most.fetch_max(now.load(Ordering::SeqCst) - 1, Ordering::SeqCst);
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            now.fetch_sub(1, Ordering::SeqCst);
            kit::applied(sending, &call)
        }
    });
    let steps = (0..20).map(|n| format!("a{n}")).chain(["heavy".to_owned()]);
    let steps = steps.chain((0..20).map(|n| format!("b{n}")));
    kit::submit_all(&world, "rust.one", steps).await;
    sqlx::query("update oncebox.operations set lost_claims = 3 where operation_key like '%heavy'")
        .execute(&mut world.connect().await)
        .await
        .unwrap();
    let tools = RustTools::default().with("rust.one", "1", Arc::new(tool));
    let roles = world.run_with("relay,worker", &[], tools);
    world.settled(40).await;
    assert_eq!(
        world.count("select count(*) from oncebox.operations where status = 'applied'").await,
        41
    );
    assert_eq!(beside.load(Ordering::SeqCst), 0, "others ran beside it");
    assert_eq!(kit::record(&world, "heavy").await.lost_claims, 0);
    roles.stop().await;
}

#[tokio::test]
async fn a_record_that_changed_underneath_is_set_aside_and_its_neighbours_go_on() {
    let (world, downstream) = (World::new().await, Downstream::start());
    world.contract(&tickets(&downstream.url, "")).await;
    let steps = ["good1", "changed", "unreadable", "good2"];
    kit::submit_all(&world, "tickets.create", steps.iter().map(|&s| s.to_owned())).await;
    for change in [
        "update oncebox.operations set arguments = '{\"subject\":\"other\"}' where operation_key like '%:changed'",
        "update oncebox.operations set request_fingerprint = 'junk' where operation_key like '%:unreadable'",
    ] {
        sqlx::query(change).execute(&mut world.connect().await).await.unwrap();
    }
    let roles = world.run("relay,worker");
    for good in ["good1", "good2"] {
        kit::ends(&world, good, "applied").await;
    }
    let changed = kit::until(&world, "changed", "it is parked", |record| {
        record.phase.as_deref() == Some("parked")
    })
    .await;
    assert_eq!(changed.reason.as_deref(), Some("fingerprint_disagreement"));
    let kept = "select count(*) from oncebox.dead_letters where reason = 'unclaimable'";
    eventually("its message is kept", 20, async || (world.count(kept).await == 1).then_some(()))
        .await;
    assert_eq!(downstream.total().await, 2);
    roles.stop().await;
}
