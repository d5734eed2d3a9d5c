//! Faults of the whole node. Run them alone, with RABBITMQCTL naming a command that runs rabbitmqctl on
//! the tests' broker: `cargo nextest run -j 1 --run-ignored only node_wide`.

use super::*;

fn rabbitmqctl(arguments: &[&str]) {
    let command = std::env::var("RABBITMQCTL").expect("RABBITMQCTL names rabbitmqctl");
    let done = std::process::Command::new(command).args(arguments).output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "raises a memory alarm on the whole node"]
async fn node_wide_a_memory_alarm_blocks_publishing_only() {
    let broker = fresh().await;
    publish_to(&broker, "a", 10).await;
    let consuming = connect(&broker.settings().prefix).await;
    let mut consumer = Consumer::start(&consuming, &tools(&[("a", 1)])).await.unwrap();
    let publishing = Broker::connect(&BrokerSettings {
        confirm_timeout: Duration::from_secs(2),
        connect_timeout: Duration::from_secs(3),
        ..settings_for(&broker.settings().prefix)
    })
    .await
    .unwrap();
    let mut publisher = Publisher::open(&publishing).await.unwrap();
    rabbitmqctl(&["set_vm_memory_high_watermark", "0.00001"]);
    let batch = [message("a")];
    let unconfirmed = soon("the deadline", publisher.publish_batch(&batch)).await.unwrap();
    assert_eq!(unconfirmed, [PublishResult::Unconfirmed]);
    eventually("the block is seen", async || publishing.blocked()).await;
    for _ in 0..5 {
        let error = soon("an answer", Publisher::open(&publishing)).await.unwrap_err();
        assert!(matches!(error, BrokerError::Blocked), "{error}");
    }
    assert!(publishing.is_usable(), "blocked is not lost");
    for _ in 0..10 {
        let delivery = receive(&mut consumer, "consuming goes on").await;
        assert_eq!(delivery.ack().await.unwrap(), AckResult::Acked);
    }
    rabbitmqctl(&["set_vm_memory_high_watermark", "0.4"]);
    eventually("the block is over", async || !publishing.blocked()).await;
    assert_eq!(publish(&publishing, &batch).await, [PublishResult::Confirmed]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "shortens the consumer time-out of the whole node"]
async fn node_wide_a_consumer_timeout_closes_one_tools_channel_and_is_repaired() {
    let time_out = |ms: u32| {
        rabbitmqctl(&[
            "eval",
            &format!(
                "application:set_env(rabbit,consumer_timeout,{ms}), application:set_env(rabbit,channel_tick_interval,1000)."
            ),
        ]);
    };
    time_out(3000);
    let broker = fresh().await;
    publish_to(&broker, "slow", 1).await;
    publish_to(&broker, "quick", 1).await;
    let mut consumer =
        Consumer::start(&broker, &tools(&[("slow", 5), ("quick", 5)])).await.unwrap();
    let mut events = consumer.events().unwrap();
    let mut held = Vec::new();
    for _ in 0..2 {
        let delivery = receive(&mut consumer, "both").await;
        if delivery.message.tool == "slow" {
            held.push(delivery);
        } else {
            delivery.ack().await.unwrap();
        }
    }
    // RabbitMQ up to 4.2 closes the channel, 4.3 cancels the consumer.
    event(&mut events, |event| {
        matches!(event, ConsumerEvent::ChannelClosed { .. } | ConsumerEvent::Cancelled { .. })
    })
    .await;
    event(&mut events, |event| matches!(event, ConsumerEvent::Resumed { tool } if tool == "slow"))
        .await;
    for delivery in held {
        // Gone with its channel, or written to a channel that no longer knows it.
        delivery.ack().await.expect("a late acknowledgement is harmless");
    }
    let mut again = receive(&mut consumer, "the slow one again").await;
    assert_eq!(again.message.tool, "slow");
    again.ack().await.unwrap();
    publish_to(&broker, "slow", 1).await;
    again = receive(&mut consumer, "another slow one").await;
    assert_eq!(again.ack().await.unwrap(), AckResult::Acked);
    time_out(1_800_000);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "stops the whole node"]
async fn node_wide_a_stopped_broker_is_noticed_and_a_started_one_has_everything() {
    let broker = fresh().await;
    let prefix = broker.settings().prefix.clone();
    let sent = publish_to(&broker, "a", 20).await;
    let consuming = connect(&prefix).await;
    let mut consumer = Consumer::start(&consuming, &tools(&[("a", 5)])).await.unwrap();
    let unfinished = receive(&mut consumer, "a message").await;
    rabbitmqctl(&["stop_app"]);
    soon("the publishing side's loss", broker.lost()).await;
    let end = soon("the end", async {
        loop {
            if let Err(end) = consumer.recv().await {
                return end;
            }
        }
    })
    .await;
    assert!(matches!(end, ConsumerEnd::ConnectionLost(_)), "{end:?}");
    assert_eq!(unfinished.ack().await.unwrap(), AckResult::ChannelGone);
    let error = soon("an answer", Broker::connect(&settings_for(&prefix))).await.unwrap_err();
    assert!(matches!(error, BrokerError::Connect { .. }), "{error}");

    rabbitmqctl(&["start_app"]);
    eventually("it answers again", async || Broker::connect(&settings_for(&prefix)).await.is_ok())
        .await;
    let consuming = connect(&prefix).await;
    let mut consumer = Consumer::start(&consuming, &tools(&[("a", 5)])).await.unwrap();
    let mut seen = HashSet::new();
    while seen != sent {
        let delivery = receive(&mut consumer, "everything").await;
        seen.insert(delivery.message.envelope().unwrap().operation_key);
        delivery.ack().await.unwrap();
    }
}
