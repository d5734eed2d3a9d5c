//! Nothing is called stored without its own confirm, and every wait ends.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_returned_message_is_matched_by_its_own_id() {
    let broker = fresh().await;
    broker.declare_base().await.unwrap();
    broker.declare_tool("here").await.unwrap();
    let mut publisher = Publisher::open(&broker).await.unwrap();
    let mut other = Publisher::open(&broker).await.unwrap();
    let mut confirmed = 0;
    // Large batches, so that the broker acknowledges routable and unroutable ones together: a return
    // then comes with somebody else's confirm.
    for round in 0..40_u32 {
        let tool = |n: u32| if (n * 7 + round).is_multiple_of(3) { "nowhere" } else { "here" };
        let mine: Vec<_> = (0..400).map(|n| message(tool(n))).collect();
        let theirs: Vec<_> = (0..400).map(|n| message(tool(n + 1))).collect();
        let both =
            futures::future::join(publisher.publish_batch(&mine), other.publish_batch(&theirs));
        let (got, got_theirs) = soon("confirms", both).await;
        for (sent, results) in [(mine, got), (theirs, got_theirs)] {
            for (message, result) in sent.iter().zip(results.unwrap()) {
                let expected = match message.tool.as_str() {
                    "here" => PublishResult::Confirmed,
                    _ => PublishResult::Unroutable,
                };
                assert_eq!(result, expected, "round {round}, {message:?}");
                confirmed += u32::from(result == PublishResult::Confirmed);
            }
        }
    }
    eventually("all confirmed messages wait", async || {
        broker.ready_count("here").await.unwrap() == confirmed
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_never_be_sent_stops_nobody() {
    let broker = fresh().await;
    broker.declare_base().await.unwrap();
    broker.declare_tool("here").await.unwrap();
    let too_long = OutgoingMessage { tool: "t".repeat(300), ..message("here") };
    let too_large = OutgoingMessage { traceparent: Some("x".repeat(200_000)), ..message("here") };
    let results = publish(&broker, &[message("here"), too_long, too_large, message("here")]).await;
    assert!(
        matches!(
            results[..],
            [
                PublishResult::Confirmed,
                PublishResult::Unpublishable(_),
                PublishResult::Unpublishable(_),
                PublishResult::Confirmed
            ]
        ),
        "{results:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_exchange_costs_the_channel_and_comes_back_with_the_next_publisher() {
    let broker = fresh().await;
    publish_to(&broker, "here", 1).await;
    let mut publisher = Publisher::open(&broker).await.unwrap();
    delete_on_the_side(&broker, async |channel| {
        channel
            .exchange_delete(broker.names().operations().into(), Default::default())
            .await
            .unwrap();
    })
    .await;
    let batch: Vec<_> = (0..5).map(|_| message("here")).collect();
    let lost = soon("an answer", publisher.publish_batch(&batch)).await.unwrap();
    assert!(lost.iter().all(|result| *result == PublishResult::Unconfirmed), "{lost:?}");
    assert!(!publisher.is_usable());
    let refused = publisher.publish_batch(&batch).await.unwrap_err();
    assert!(matches!(refused, BrokerError::ChannelClosed { .. }), "{refused:?}");

    let unbound = publish(&broker, &batch).await;
    assert!(unbound.iter().all(|result| *result == PublishResult::Unroutable), "{unbound:?}");
    broker.declare_tool("here").await.unwrap();
    let stored = publish(&broker, &batch).await;
    assert!(stored.iter().all(|result| *result == PublishResult::Confirmed), "{stored:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_broker_is_given_up_in_bounded_time() {
    let (login, host) = amqp_authority();
    let valve = Cutter::open(&host).await;
    let prefix = format!("t{}.", Uuid::new_v4().simple());
    let settings = BrokerSettings {
        url: AmqpUrl::new(format!("amqp://{login}@{}", valve.address())),
        connect_timeout: Duration::from_secs(2),
        confirm_timeout: Duration::from_secs(2),
        ..settings_for(&prefix)
    };
    let broker = Broker::connect(&settings).await.unwrap();
    broker.declare_base().await.unwrap();
    broker.declare_tool("here").await.unwrap();
    let mut publisher = Publisher::open(&broker).await.unwrap();
    let batch: Vec<_> = (0..20).map(|_| message("here")).collect();

    valve.swallow_answers(true);
    let started = Instant::now();
    let results = soon("the deadline", publisher.publish_batch(&batch)).await.unwrap();
    assert!(results.iter().all(|result| *result == PublishResult::Unconfirmed), "{results:?}");
    assert!(!publisher.is_usable());
    let error = soon("the deadline", Publisher::open(&broker)).await.unwrap_err();
    assert!(matches!(error, BrokerError::ConnectionLost { .. }), "{error:?}");
    soon("the loss", broker.lost()).await;
    assert!(!broker.is_usable());
    let error = soon("the deadline", Broker::connect(&settings)).await.unwrap_err();
    assert!(matches!(error, BrokerError::Connect { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(12), "{:?}", started.elapsed());

    valve.swallow_answers(false);
    let broker = Broker::connect(&settings).await.unwrap();
    let results = publish(&broker, &batch).await;
    assert!(results.iter().all(|result| *result == PublishResult::Confirmed), "{results:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_were_given_up_leave_no_thread_behind() {
    let (login, host) = amqp_authority();
    let valve = Cutter::open(&host).await;
    let through_valve = BrokerSettings {
        url: AmqpUrl::new(format!("amqp://{login}@{}", valve.address())),
        connect_timeout: Duration::from_millis(500),
        ..settings_for(&format!("t{}.", Uuid::new_v4().simple()))
    };
    let mut connected = Vec::new();
    for _ in 0..3 {
        connected.push(Broker::connect(&through_valve).await.unwrap());
    }
    assert!(library_threads() >= 3);
    assert_eq!(valve.live(), 3);
    valve.swallow_answers(true);
    for _ in 0..3 {
        Broker::connect(&through_valve).await.unwrap_err();
    }
    drop(connected);
    eventually("the sockets close", async || valve.live() == 0).await;
    // `cargo test` runs other tests, with threads of the same name, in this process.
    if std::env::var("NEXTEST").is_ok() {
        eventually("the threads end", async || library_threads() == 0).await;
    }
}

fn library_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "lapin-io-loop").count()
}
