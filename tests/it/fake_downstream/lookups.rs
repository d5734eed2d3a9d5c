//! A ticket is found by key, reference and receipt, and every way in which a look-up misleads can be ordered.

use std::time::Duration;

use serde_json::json;

use super::{create, get, gives_up, status};
use crate::support::downstream::Downstream;
use crate::support::eventually;

const BY_KEY: &str = "/tickets?key=k%3A1";

#[tokio::test]
async fn a_ticket_is_found_by_key_reference_and_receipt() {
    let downstream = Downstream::start();
    assert_eq!(status(&downstream, BY_KEY).await, 404);
    let made = create(&downstream, "k:1").await;
    assert_eq!((made.status, made.text("status").as_str()), (201, "open"));
    let id = made.text("ticket_id");
    for path in [BY_KEY, "/tickets?reference=case+7", &format!("/tickets/{id}")] {
        let found = get(&downstream, path).await;
        assert_eq!((found.status, found.json()), (200, made.json()), "{path}");
    }
    for path in ["/tickets?key=other", "/tickets?reference=k%3A1", "/tickets/k%3A1"] {
        assert_eq!(status(&downstream, path).await, 404, "{path}");
    }
    assert_eq!(status(&downstream, "/tickets?subject=s").await, 400);
    assert_eq!(downstream.lookups().of("k:1").count().await, 4, "two asked for no such reference");
    assert_eq!(downstream.lookups().of(&id).count().await, 1);
    assert_eq!(downstream.lookups().count().await, 7, "a question without a subject is none");
    assert_eq!(downstream.effects().await["requests"], 1, "look-ups are no requests for effects");
}

#[tokio::test]
async fn without_an_idempotency_key_a_reference_names_the_ticket_and_stops_no_second_one() {
    let downstream = Downstream::start();
    let body = r#"{"queue": "q", "subject": "s", "body": "b"}"#;
    for _ in 0..2 {
        let made = downstream.ask("POST", "/tickets", &["X-Reference: r1"], body).await;
        assert_eq!(made.status, 201);
    }
    let found = get(&downstream, "/tickets?reference=r1").await;
    assert_eq!((found.status, found.text("ticket_id").as_str()), (200, "T-1"));
    assert_eq!(downstream.effects_of("r1").await, 2);
}

#[tokio::test]
async fn with_deduplication_off_the_first_is_found_and_all_are_counted() {
    let downstream = Downstream::start_with(&["--no-dedup"]);
    let (first, second) = (create(&downstream, "k:1").await, create(&downstream, "k:1").await);
    assert_eq!((first.status, second.status), (201, 201));
    assert_ne!(first.text("ticket_id"), second.text("ticket_id"));
    for path in [BY_KEY, "/tickets?reference=case+7"] {
        assert_eq!(get(&downstream, path).await.json(), first.json());
    }
    let id = second.text("ticket_id");
    assert_eq!(get(&downstream, &format!("/tickets/{id}")).await.text("ticket_id"), id);
    assert_eq!((downstream.effects_of("k:1").await, downstream.most_per_key().await), (2, 2));
    assert_eq!(downstream.tickets().of("k:1").count().await, 2);
}

#[tokio::test]
async fn an_effect_becomes_visible_only_after_the_time_that_was_set() {
    let downstream = Downstream::start();
    downstream.lookups().invisible_for(Duration::from_mins(1)).await;
    let id = create(&downstream, "k:1").await.text("ticket_id");
    let by_id = format!("/tickets/{id}");
    for path in [BY_KEY, "/tickets?reference=case+7", &by_id] {
        assert_eq!(status(&downstream, path).await, 404, "{path}");
    }
    assert_eq!(create(&downstream, "k:1").await.text("ticket_id"), id, "it is there all the same");
    downstream.lookups().invisible_for(Duration::from_millis(50)).await;
    eventually("the ticket shows", 5, async || {
        (status(&downstream, BY_KEY).await == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn look_ups_fail_lie_and_fall_silent_as_often_as_they_are_told() {
    let downstream = Downstream::start();
    create(&downstream, "k:1").await;
    let lookups = downstream.lookups();
    let found = async || status(&downstream, BY_KEY).await;

    lookups.fail(2).await;
    assert_eq!([found().await, found().await, found().await], [500, 500, 200]);
    lookups.unavailable(7, 1).await;
    let later = get(&downstream, BY_KEY).await;
    assert!(later.status == 503 && later.head.contains("retry-after: 7"), "{later:?}");
    lookups.say_absent(1).await;
    assert_eq!([found().await, found().await], [404, 200]);
    lookups.drop_connection(1).await;
    assert_eq!([found().await, found().await], [0, 200]);
    lookups.drop_answer(1).await;
    assert_eq!([found().await, found().await], [0, 200]);
    lookups.say_nothing(1).await;
    let empty = get(&downstream, BY_KEY).await;
    assert_eq!((empty.status, empty.json()), (200, json!({"status": "open"})));
    lookups.garbage(1).await;
    let garbage = get(&downstream, BY_KEY).await;
    assert!(garbage.status == 200 && garbage.json().is_null(), "{garbage:?}");
    lookups.answer_after(Duration::from_mins(1), 1).await;
    gives_up(&downstream, get(&downstream, BY_KEY)).await;
    lookups.hang(1).await;
    gives_up(&downstream, get(&downstream, BY_KEY)).await;
    assert_eq!(found().await, 200);
    assert_eq!(lookups.count().await, 15);
    assert_eq!(downstream.total().await, 1);
}

#[tokio::test]
async fn a_hanging_call_ends_with_the_reset_and_made_nothing() {
    let downstream = Downstream::start();
    downstream.tickets().hang(1).await;
    let (made, ()) = tokio::join!(create(&downstream, "k:1"), async {
        downstream.tickets().arrived(1, 5).await;
        downstream.reset().await;
    });
    assert_eq!((made.status, downstream.total().await), (0, 0));
    assert_eq!(create(&downstream, "k:1").await.status, 201);
}

#[tokio::test]
async fn a_fault_of_one_subject_spares_the_others_and_held_calls_go_on() {
    let downstream = Downstream::start();
    create(&downstream, "k:1").await;
    downstream.lookups().of("k:1").fail(9).await;
    assert_eq!(status(&downstream, BY_KEY).await, 500);
    assert_eq!(status(&downstream, "/tickets?key=k%3A10").await, 404);
    downstream.reset().await;
    downstream.lookups().hold().await;
    assert_eq!(create(&downstream, "k:2").await.status, 201, "only look-ups are held");
    gives_up(&downstream, get(&downstream, BY_KEY)).await;
    let (found, ()) = tokio::join!(status(&downstream, BY_KEY), async {
        downstream.lookups().of("k:1").arrived(3, 5).await;
        downstream.lookups().let_go().await;
    });
    assert_eq!(found, 200);
}

#[tokio::test]
async fn what_was_done_before_a_kill_is_found_after_it() {
    let directory = std::env::temp_dir().join(format!("fake_{}", uuid::Uuid::now_v7().simple()));
    let journal = directory.to_str().unwrap();
    let mut downstream = Downstream::start_with(&["--journal", journal]);
    let made = create(&downstream, "k:1").await;
    downstream.process.kill();
    let again = Downstream::start_with(&["--journal", journal]);
    assert_eq!(get(&again, "/tickets?reference=case+7").await.json(), made.json());
    assert_eq!(get(&again, BY_KEY).await.json(), made.json());
    std::fs::remove_file(directory).ok();
}
