//! Faults of the whole node: an alarm, a consumer time-out, a stop. Each test has a broker of its own.

use super::*;
use crate::support::servers::Servers;
use crate::support::wire::rabbitmqctl;

fn settings_on(servers: &Servers) -> BrokerSettings {
    settings_at(&servers.variable("AMQP_URL"), "t.")
}

async fn connect_on(servers: &Servers) -> Broker {
    Broker::connect(&settings_on(servers)).await.expect("a connection")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_alarm_blocks_publishing_only() {
    let servers = Servers::start().await;
    let broker = connect_on(&servers).await;
    publish_to(&broker, "a", 10).await;
    let consuming = connect_on(&servers).await;
    let mut consumer = Consumer::start(&consuming, &tools(&[("a", 1)])).await.unwrap();
    let publishing = Broker::connect(&BrokerSettings {
        confirm_timeout: Duration::from_secs(2),
        connect_timeout: Duration::from_secs(3),
        ..settings_on(&servers)
    })
    .await
    .unwrap();
    let mut publisher = Publisher::open(&publishing).await.unwrap();
    rabbitmqctl(&servers, &["set_vm_memory_high_watermark", "0.00001"]).await;
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
    rabbitmqctl(&servers, &["set_vm_memory_high_watermark", "0.4"]).await;
    eventually("the block is over", async || !publishing.blocked()).await;
    assert_eq!(publish(&publishing, &batch).await, [PublishResult::Confirmed]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_timeout_closes_one_tools_channel_and_is_repaired() {
    let servers = Servers::start().await;
    servers.rabbit_eval(
        "application:set_env(rabbit,consumer_timeout,3000), application:set_env(rabbit,channel_tick_interval,1000).",
    );
    let broker = connect_on(&servers).await;
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
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_broker_is_noticed_and_a_started_one_has_everything() {
    let servers = Servers::start().await;
    let broker = connect_on(&servers).await;
    let sent = publish_to(&broker, "a", 20).await;
    let consuming = connect_on(&servers).await;
    let mut consumer = Consumer::start(&consuming, &tools(&[("a", 5)])).await.unwrap();
    let unfinished = receive(&mut consumer, "a message").await;
    rabbitmqctl(&servers, &["stop_app"]).await;
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
    let error = soon("an answer", Broker::connect(&settings_on(&servers))).await.unwrap_err();
    assert!(matches!(error, BrokerError::Connect { .. }), "{error}");

    rabbitmqctl(&servers, &["start_app"]).await;
    eventually("it answers again", async || Broker::connect(&settings_on(&servers)).await.is_ok())
        .await;
    let consuming = connect_on(&servers).await;
    let mut consumer = Consumer::start(&consuming, &tools(&[("a", 5)])).await.unwrap();
    let mut seen = HashSet::new();
    while seen != sent {
        let delivery = receive(&mut consumer, "everything").await;
        seen.insert(delivery.message.envelope().unwrap().operation_key);
        delivery.ack().await.unwrap();
    }
}
