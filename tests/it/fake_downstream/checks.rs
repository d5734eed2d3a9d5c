//! A precondition or postcondition holds until a test takes it away, for one subject or for all.

use std::time::Duration;

use super::{create, gives_up, status};
use crate::support::downstream::Downstream;

#[tokio::test]
async fn a_queue_is_open_until_it_is_closed() {
    let downstream = Downstream::start();
    let open = async |queue: &str| status(&downstream, &format!("/queues/{queue}/open")).await;
    assert_eq!(open("support").await, 200);
    downstream.preconditions().of("support").always(409).await;
    downstream.preconditions().of("gone").always(404).await;
    for _ in 0..2 {
        assert_eq!(
            [open("support").await, open("gone").await, open("other").await],
            [409, 404, 200]
        );
    }
    downstream.preconditions().of("support").as_usual().await;
    assert_eq!([open("support").await, open("gone").await], [200, 404]);
    downstream.preconditions().always(500).await;
    assert_eq!([open("support").await, open("other").await], [500, 500]);
    downstream.preconditions().as_usual().await;
    downstream.preconditions().drop_connection(1).await;
    downstream.preconditions().hang(1).await;
    assert_eq!(open("support").await, 0);
    gives_up(&downstream, super::get(&downstream, "/queues/support/open")).await;
    assert_eq!(open("support").await, 200);
    assert_eq!(downstream.preconditions().of("gone").count().await, 3);
    assert_eq!(downstream.preconditions().count().await, 14);
}

#[tokio::test]
async fn a_ticket_is_verified_when_it_is_there_unless_told_otherwise() {
    let downstream = Downstream::start();
    let by_key = "/tickets/verified?key=k%3A1";
    assert_eq!(
        [status(&downstream, by_key).await, status(&downstream, "/tickets/T-1/verified").await],
        [404; 2]
    );
    downstream.lookups().invisible_for(Duration::from_mins(1)).await;
    let id = create(&downstream, "k:1").await.text("ticket_id");
    let by_id = format!("/tickets/{id}/verified");
    for path in [by_key, &by_id, "/tickets/verified?reference=case+7"] {
        assert_eq!(status(&downstream, path).await, 200, "{path}");
    }
    downstream.postconditions().of(&id).answer(404, 1).await;
    downstream.postconditions().fail(1).await;
    assert_eq!([status(&downstream, &by_id).await, status(&downstream, by_key).await], [404, 500]);
    downstream.postconditions().hang(1).await;
    gives_up(&downstream, super::get(&downstream, &by_id)).await;
    assert_eq!(status(&downstream, &by_id).await, 200);
    assert_eq!(downstream.postconditions().of("k:1").count().await, 3);
    assert_eq!(downstream.postconditions().of(&id).count().await, 5);
}
