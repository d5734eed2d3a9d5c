//! A provider's job makes its effect when it ends and no sooner, and can go wrong at every step.

use std::time::Duration;

use super::{BODY, get, gives_up, status};
use crate::support::downstream::{Answer, Downstream};
use crate::support::eventually;

async fn submit(downstream: &Downstream, key: &str) -> Answer {
    let header = format!("Idempotency-Key: {key}");
    downstream.ask("POST", "/jobs", &[&header], BODY).await
}

async fn poll(downstream: &Downstream, job: &str) -> Answer {
    get(downstream, &format!("/jobs/{job}")).await
}

#[tokio::test]
async fn the_effect_counts_when_the_job_ends_and_is_found_from_then_on() {
    let downstream = Downstream::start();
    downstream.jobs().run_until_told().await;
    let accepted = submit(&downstream, "k").await;
    let job = accepted.text("job_id");
    assert_eq!((accepted.status, job.as_str()), (202, "J-1"));
    let running = poll(&downstream, &job).await;
    assert_eq!((running.status, running.text("state").as_str()), (202, "running"));
    assert_eq!((downstream.total().await, status(&downstream, "/tickets?key=k").await), (0, 404));
    downstream.jobs().finish(&job).await;
    let done = poll(&downstream, &job).await;
    assert_eq!((done.status, done.text("ticket_id").as_str()), (200, "T-1"));
    assert_eq!(get(&downstream, "/tickets?key=k").await.json(), done.json());
    assert_eq!(get(&downstream, "/tickets?reference=case+7").await.json(), done.json());
    assert_eq!((downstream.effects_of("k").await, downstream.total().await), (1, 1));
    assert_eq!(status(&downstream, "/jobs/J-2").await, 404);
    assert_eq!(downstream.polls().of(&job).count().await, 2);
    let again =
        downstream.ask("POST", "/control", &[], r#"{"end_job": {"id": "J-1", "end": "done"}}"#);
    assert_eq!(again.await.status, 409, "an end that ends nothing is a mistake of the test");
}

#[tokio::test]
async fn a_key_has_one_job_where_keys_are_remembered_and_each_its_own_where_they_are_not() {
    let downstream = Downstream::start();
    downstream.jobs().run_until_told().await;
    submit(&downstream, "k").await;
    let again = submit(&downstream, "k").await;
    assert_eq!((again.status, again.text("job_id").as_str()), (202, "J-1"));
    assert!(again.head.contains("idempotent-replayed"), "{again:?}");
    let other = r#"{"queue": "q", "subject": "other", "body": "b"}"#;
    let other = downstream.ask("POST", "/jobs", &["Idempotency-Key: k"], other).await;
    assert_eq!(other.status, 422);
    assert_eq!(downstream.jobs().under("k").await, ["J-1"]);
    assert_eq!(downstream.jobs().of("k").count().await, 3);

    let forgetful = Downstream::start_with(&["--no-dedup"]);
    submit(&forgetful, "k").await;
    submit(&forgetful, "k").await;
    assert_eq!(forgetful.jobs().under("k").await, ["J-1", "J-2"]);
    eventually("both are done", 5, async || (forgetful.effects_of("k").await == 2).then_some(()))
        .await;
}

#[tokio::test]
async fn jobs_take_their_time_end_badly_or_answer_at_once() {
    let downstream = Downstream::start();
    downstream.jobs().take(Duration::from_millis(30)).await;
    let good = submit(&downstream, "a").await.text("job_id");
    downstream.jobs().break_after(Duration::from_millis(30)).await;
    let bad = submit(&downstream, "b").await.text("job_id");
    downstream.jobs().run_until_told().await;
    let endless = submit(&downstream, "c").await.text("job_id");
    let told = submit(&downstream, "d").await.text("job_id");
    downstream.jobs().break_off(&told).await;
    downstream.jobs().take(Duration::ZERO).await;
    let at_once = submit(&downstream, "e").await;
    assert!(at_once.status == 201 && at_once.text("ticket_id").starts_with("T-"), "{at_once:?}");
    eventually("two have ended", 5, async || {
        let ended = [poll(&downstream, &good).await.status, poll(&downstream, &bad).await.status];
        (ended == [200, 410]).then_some(())
    })
    .await;
    assert_eq!(
        (downstream.jobs().state(&endless).await.as_str(), downstream.total().await),
        ("running", 2)
    );
    assert_eq!(downstream.jobs().state(&told).await, "failed");
}

#[tokio::test]
async fn a_submission_is_lost_on_either_side_and_a_poll_fails_as_often_as_it_is_told() {
    let downstream = Downstream::start();
    downstream.jobs().run_until_told().await;
    downstream.jobs().fail(1).await;
    downstream.jobs().drop_connection(1).await;
    downstream.jobs().drop_answer(1).await;
    downstream.jobs().say_nothing(1).await;
    for (key, status) in [("a", 500), ("b", 0), ("c", 0)] {
        assert_eq!(submit(&downstream, key).await.status, status, "{key}");
    }
    let nameless = submit(&downstream, "d").await;
    assert_eq!((nameless.status, nameless.json()["job_id"].is_null()), (202, true));
    for (key, jobs) in [("a", 0), ("b", 0), ("c", 1), ("d", 1)] {
        assert_eq!(downstream.jobs().under(key).await.len(), jobs, "{key}");
    }
    assert_eq!((downstream.jobs().count().await, downstream.total().await), (4, 0));

    downstream.polls().of("J-1").fail(2).await;
    downstream.polls().drop_connection(1).await;
    downstream.polls().hang(1).await;
    let polled = async || poll(&downstream, "J-1").await.status;
    assert_eq!([polled().await, polled().await, polled().await], [500, 500, 0]);
    gives_up(&downstream, poll(&downstream, "J-1")).await;
    assert_eq!(polled().await, 202);
}

#[tokio::test]
async fn jobs_outlive_a_kill() {
    let file = std::env::temp_dir().join(format!("fake_{}", uuid::Uuid::now_v7().simple()));
    let journal = file.to_str().unwrap();
    let mut downstream = Downstream::start_with(&["--journal", journal]);
    downstream.jobs().run_until_told().await;
    for key in ["done", "failed", "running"] {
        submit(&downstream, key).await;
    }
    downstream.jobs().finish("J-1").await;
    downstream.jobs().break_off("J-2").await;
    downstream.process.kill();
    let again = Downstream::start_with(&["--journal", journal]);
    assert_eq!(poll(&again, "J-1").await.text("ticket_id"), "T-1");
    assert_eq!(poll(&again, "J-2").await.status, 410);
    assert_eq!(submit(&again, "running").await.text("job_id"), "J-3");
    eventually("the third is done", 5, async || (again.total().await == 2).then_some(())).await;
    let lines = std::fs::read_to_string(&file).unwrap().lines().count();
    assert_eq!(lines, 2, "the effects' journal holds effects only");
    std::fs::remove_file(file.with_added_extension("jobs")).ok();
    std::fs::remove_file(file).ok();
}
