//! A queue that gives no answer costs its own tool only: the connection that the tools share stands,
//! the queue is asked again on another one, and a broker that answers nothing is still noticed.

use super::*;
use crate::support::mute::{BIND, CONSUME, DECLARE, Mute};
use oncebox::broker::SilentQueues;

struct Muted {
    mute: Mute,
    settings: BrokerSettings,
    dead: String,
}

async fn muted() -> Muted {
    let (login, host) = amqp_authority();
    let mute = Mute::open(&host).await;
    let settings = BrokerSettings {
        url: AmqpUrl::new(format!("amqp://{login}@{}", mute.address)),
        connect_timeout: Duration::from_secs(3),
        ..settings_for(&format!("t{}.", Uuid::new_v4().simple()))
    };
    let dead = format!("{}oncebox.dead-one", settings.prefix);
    Muted { mute, settings, dead }
}

/// An exchange of messages with the tool that has no trouble.
async fn goes_on(straight: &Broker, consumer: &mut Consumer) {
    publish_to(straight, "sound", 1).await;
    let delivery = receive(consumer, "the other tool's message").await;
    assert_eq!(delivery.message.tool, "sound");
    assert_eq!(delivery.ack().await.unwrap(), AckResult::Acked);
}

async fn unserved(events: &mut mpsc::Receiver<ConsumerEvent>) {
    let told = event(events, |event| {
        assert_ne!(*event, ConsumerEvent::ConnectionLost);
        matches!(event, ConsumerEvent::Unserved { .. })
    })
    .await;
    let ConsumerEvent::Unserved { tool, reason } = told else { unreachable!() };
    assert!(tool == "dead-one" && reason.contains("delete the queue"), "{tool}: {reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consume_without_an_answer_costs_its_tool_only_and_is_tried_again() {
    let Muted { mute, settings, dead } = muted().await;
    let straight = connect(&settings.prefix).await;
    publish_to(&straight, "dead-one", 2).await;
    for methods in [&[CONSUME][..], &[DECLARE], &[BIND]] {
        mute.silence(methods, &dead);
        let consuming = Broker::connect(&settings).await.unwrap();
        let both = tools(&[("dead-one", 5), ("sound", 5)]);
        let mut consumer = Consumer::start(&consuming, &both).await.unwrap();
        let mut events = consumer.events().unwrap();
        goes_on(&straight, &mut consumer).await;
        unserved(&mut events).await;
        assert!(consuming.is_usable(), "the others' connection stands");
        goes_on(&straight, &mut consumer).await;
        mute.heal();
        let resumed = event(&mut events, |event| matches!(event, ConsumerEvent::Resumed { .. }));
        assert_eq!(resumed.await, ConsumerEvent::Resumed { tool: "dead-one".to_owned() });
        for _ in 0..2 {
            let delivery = receive(&mut consumer, "what had waited").await;
            assert_eq!(delivery.message.tool, "dead-one");
            delivery.ack().await.unwrap();
        }
        assert!(consuming.is_usable());
        drop(consumer);
        consuming.close().await;
        publish_to(&straight, "dead-one", 2).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_queue_is_asked_again_apart_also_after_the_shared_connection_was_lost() {
    let Muted { mute, settings, dead } = muted().await;
    mute.silence(&[CONSUME], &dead);
    let straight = connect(&settings.prefix).await;
    let both = tools(&[("dead-one", 5), ("sound", 5)]);
    let silent = SilentQueues::default();
    let consuming = Broker::connect(&settings).await.unwrap();
    let mut consumer = Consumer::start_knowing(&consuming, &both, &silent).await.unwrap();
    let mut events = consumer.events().unwrap();
    unserved(&mut events).await;
    unserved(&mut events).await;
    goes_on(&straight, &mut consumer).await;
    // What RabbitMQ does to a connection a minute after such a consume.
    mute.cut();
    soon("the end", consumer.recv()).await.unwrap_err();
    let consuming = Broker::connect(&settings).await.unwrap();
    let mut consumer = Consumer::start_knowing(&consuming, &both, &silent).await.unwrap();
    goes_on(&straight, &mut consumer).await;
    let asked = || mute.consumes().into_iter().filter(|consume| consume.queue == dead);
    eventually("it is asked once more", async || asked().count() == 3).await;
    for consume in asked().skip(1) {
        let beside = mute.consumes();
        let beside = beside.iter().filter(|other| other.connection == consume.connection);
        assert_eq!(beside.count(), 1, "{:?}", mute.consumes());
    }
    goes_on(&straight, &mut consumer).await;
    assert!(consuming.is_usable());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_sends_heartbeats_and_answers_nothing_is_given_up_in_bounded_time() {
    let Muted { mute, settings, .. } = muted().await;
    let settings = BrokerSettings { heartbeat: Duration::from_secs(1), ..settings };
    let broker = Broker::connect(&settings).await.unwrap();
    broker.declare_base().await.unwrap();
    assert!(broker.dead_count().await.is_ok(), "a channel is open");
    mute.only_heartbeats();
    let error = soon("an answer", broker.dead_count()).await.unwrap_err();
    assert!(matches!(error, BrokerError::ConnectionLost { .. }), "{error}");
    assert!(!broker.is_usable());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_without_an_answer_costs_one_channel() {
    let Muted { mute, settings, dead } = muted().await;
    let broker = Broker::connect(&settings).await.unwrap();
    broker.declare_base().await.unwrap();
    for tool in ["dead-one", "sound"] {
        broker.declare_tool(tool).await.unwrap();
    }
    mute.silence(&[DECLARE], &dead);
    for _ in 0..2 {
        let error = soon("an answer", broker.ready_count("dead-one")).await.unwrap_err();
        assert!(matches!(error, BrokerError::Timeout { .. }), "{error}");
        assert_eq!(broker.ready_count("sound").await.unwrap(), 0);
    }
    mute.heal();
    assert_eq!(broker.ready_count("dead-one").await.unwrap(), 0);
}
