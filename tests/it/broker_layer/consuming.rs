//! Trouble with one tool stays with it, and is repaired; what is unfinished comes again.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_was_published_is_delivered_and_acknowledged_once() {
    let broker = fresh().await;
    let mut sent = publish_to(&broker, "a", 60).await;
    sent.extend(publish_to(&broker, "b", 40).await);
    let consuming = connect(&broker.settings().prefix).await;
    let mut consumer = Consumer::start(&consuming, &tools(&[("a", 10), ("b", 7)])).await.unwrap();
    let mut handles = Vec::new();
    while !sent.is_empty() {
        let Delivery { message, handle } = receive(&mut consumer, "a message").await;
        let envelope = message.envelope().unwrap();
        assert!(sent.remove(&envelope.operation_key), "delivered twice");
        handles.push(handle);
        if handles.len() == 5 || sent.is_empty() {
            for result in AckHandle::ack_all(handles.drain(..)).await {
                assert_eq!(result.unwrap(), AckResult::Acked);
            }
        }
    }
    consuming.close().await;
    for tool in ["a", "b"] {
        assert_eq!(broker.ready_count(tool).await.unwrap(), 0, "{tool} holds messages");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_cancels_first_and_gives_back_what_was_not_started() {
    let broker = fresh().await;
    publish_to(&broker, "slow", 30).await;
    let consuming = connect(&broker.settings().prefix).await;
    let mut consumer = Consumer::start(&consuming, &tools(&[("slow", 20)])).await.unwrap();
    let running = receive(&mut consumer, "the first message").await;
    eventually("the prefetch is full", async || broker.ready_count("slow").await.unwrap() == 10)
        .await;

    assert!(consumer.stop_consuming(SOON).await, "the broker confirmed");
    let mut released = 0;
    loop {
        match soon("the end", consumer.recv()).await {
            Ok(delivery) => {
                assert_eq!(delivery.release().await.unwrap(), AckResult::Acked);
                released += 1;
            }
            Err(end) => break assert_eq!(end, ConsumerEnd::Stopped),
        }
    }
    assert_eq!(released, 19);
    eventually("all but the running one wait", async || {
        broker.ready_count("slow").await.unwrap() == 29
    })
    .await;
    assert_eq!(running.ack().await.unwrap(), AckResult::Acked);
    drop(consumer);
    consuming.close().await;
    assert_eq!(broker.ready_count("slow").await.unwrap(), 29);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_queue_is_declared_again_and_consumed() {
    let broker = fresh().await;
    publish_to(&broker, "a", 1).await;
    let mut consumer = Consumer::start(&broker, &tools(&[("a", 5), ("b", 5)])).await.unwrap();
    let mut events = consumer.events().unwrap();
    let old = receive(&mut consumer, "a message").await;
    delete_on_the_side(&broker, async |channel| {
        let queue = broker.names().tool("a").into();
        channel.queue_delete(queue, Default::default()).await.unwrap();
    })
    .await;
    event(&mut events, |event| matches!(event, ConsumerEvent::Cancelled { tool } if tool == "a"))
        .await;
    event(&mut events, |event| matches!(event, ConsumerEvent::Resumed { tool } if tool == "a"))
        .await;
    // Late, on the former channel: whatever it does there, the new one does not suffer.
    old.ack().await.unwrap();
    publish_to(&broker, "a", 1).await;
    publish_to(&broker, "b", 1).await;
    for _ in 0..2 {
        receive(&mut consumer, "a message after the repair").await.ack().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_with_foreign_arguments_is_reported_and_left_alone() {
    let broker = fresh().await;
    let queue = broker.names().tool("foreign");
    let sidecar = side_channel().await;
    let durable = lapin::options::QueueDeclareOptions { durable: true, ..Default::default() };
    let declare = sidecar.queue_declare(queue.as_str().into(), durable, Default::default());
    declare.await.unwrap();
    let mut consumer =
        Consumer::start(&broker, &tools(&[("foreign", 5), ("good", 5)])).await.unwrap();
    let mut events = consumer.events().unwrap();
    let told = event(&mut events, |event| matches!(event, ConsumerEvent::Unserved { .. })).await;
    assert!(
        matches!(&told, ConsumerEvent::Unserved { tool, reason }
        if tool == "foreign" && reason.contains(&queue) && reason.contains("inequivalent arg")),
        "{told:?}"
    );
    let error = broker.declare_tool("foreign").await.unwrap_err();
    assert!(matches!(&error, BrokerError::Differs { name, .. } if *name == queue), "{error}");
    publish_to(&broker, "good", 3).await;
    for _ in 0..3 {
        receive(&mut consumer, "another tool's message").await.ack().await.unwrap();
    }
    let passive = lapin::options::QueueDeclareOptions { passive: true, ..Default::default() };
    sidecar
        .queue_declare(queue.as_str().into(), passive, Default::default())
        .await
        .expect("it is still there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_noticed_and_everything_comes_again() {
    let broker = fresh().await;
    let sent = publish_to(&broker, "a", 6).await;
    let (login, host) = amqp_authority();
    let valve = Cutter::open(&host).await;
    let through_valve = BrokerSettings {
        url: AmqpUrl::new(format!("amqp://{login}@{}", valve.address())),
        ..settings_for(&broker.settings().prefix)
    };
    let consuming = Broker::connect(&through_valve).await.unwrap();
    let mut consumer = Consumer::start(&consuming, &tools(&[("a", 3)])).await.unwrap();
    let unfinished = receive(&mut consumer, "a message").await;

    let cut = Instant::now();
    valve.cut();
    let end = soon("the end", async {
        loop {
            if let Err(end) = consumer.recv().await {
                return end;
            }
        }
    })
    .await;
    assert!(matches!(end, ConsumerEnd::ConnectionLost(_)), "{end:?}");
    assert!(cut.elapsed() < Duration::from_secs(2), "{:?}", cut.elapsed());
    assert!(!consuming.is_usable());
    assert_eq!(unfinished.ack().await.unwrap(), AckResult::ChannelGone);

    let consuming = Broker::connect(&through_valve).await.unwrap();
    let mut consumer = Consumer::start(&consuming, &tools(&[("a", 3)])).await.unwrap();
    let mut seen = HashSet::new();
    while seen != sent {
        let delivery = receive(&mut consumer, "all of them again").await;
        seen.insert(delivery.message.envelope().unwrap().operation_key);
        delivery.ack().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_broker_ends_the_consumer() {
    let (login, host) = amqp_authority();
    let valve = Cutter::open(&host).await;
    let through_valve = BrokerSettings {
        url: AmqpUrl::new(format!("amqp://{login}@{}", valve.address())),
        heartbeat: Duration::from_secs(1),
        ..settings_for(&format!("t{}.", Uuid::new_v4().simple()))
    };
    let consuming = Broker::connect(&through_valve).await.unwrap();
    let mut consumer = Consumer::start(&consuming, &tools(&[("a", 3)])).await.unwrap();
    valve.swallow_answers(true);
    let end = soon("two heartbeats", consumer.recv()).await.unwrap_err();
    assert!(matches!(end, ConsumerEnd::ConnectionLost(_)), "{end:?}");
}
