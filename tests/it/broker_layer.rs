//! The broker layer tells the truth about what happened to a message, in bounded time, and one bad
//! message, queue, channel or connection hurts nothing beside it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics fails, as it should"
)]
#![allow(clippy::disallowed_methods, reason = "tests find their services through the environment")]

use std::{
    collections::HashSet,
    time::{Duration, Instant},
};

use oncebox::broker::{
    AckHandle, AckResult, AmqpUrl, Broker, BrokerError, BrokerSettings, Consumer, ConsumerEnd,
    ConsumerEvent, DeadQueue, Delivery, OutgoingMessage, PublishResult, Publisher,
    topology::DELIVERY_LIMIT,
};
use tokio::{sync::mpsc, time::timeout};
use uuid::Uuid;

use crate::{
    raw_amqp::{self, RawChannel},
    tcp_valve::Valve,
};

const SOON: Duration = Duration::from_secs(20);

fn amqp_url() -> String {
    std::env::var("AMQP_URL").expect("AMQP_URL names a broker for tests")
}

/// `user:password@host:port` of the tests' broker.
fn amqp_authority() -> (String, String) {
    let url = amqp_url();
    let rest = url.strip_prefix("amqp://").expect("a plain AMQP URL");
    let authority = rest.split('/').next().unwrap();
    let (login, host) = authority.rsplit_once('@').unwrap_or(("guest:guest", authority));
    (login.to_owned(), host.to_owned())
}

fn settings(prefix: &str) -> BrokerSettings {
    BrokerSettings {
        url: AmqpUrl::new(amqp_url()),
        prefix: prefix.to_owned(),
        connect_timeout: Duration::from_secs(10),
        heartbeat: Duration::from_secs(10),
        confirm_timeout: Duration::from_secs(10),
        name: format!("oncebox test {prefix}"),
    }
}

async fn fresh() -> Broker {
    connect(&format!("t{}.", Uuid::new_v4().simple())).await
}

async fn connect(prefix: &str) -> Broker {
    Broker::connect(&settings(prefix)).await.expect("a connection")
}

fn message(tool: &str) -> OutgoingMessage {
    let operation_id = Uuid::now_v7();
    OutgoingMessage {
        message_id: Uuid::now_v7(),
        tool: tool.to_owned(),
        operation_id,
        tenant: "acme".to_owned(),
        operation_key: format!("acme:test:w:{operation_id}"),
        traceparent: None,
    }
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(SOON, future).await.unwrap_or_else(|_| panic!("{what}: not within {SOON:?}"))
}

/// Looks again until the condition holds.
async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    soon(what, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

async fn publish(broker: &Broker, messages: &[OutgoingMessage]) -> Vec<PublishResult> {
    let mut publisher = Publisher::open(broker).await.expect("a publisher");
    soon("confirms", publisher.publish_batch(messages)).await.expect("published")
}

async fn publish_to(broker: &Broker, tool: &str, count: usize) -> HashSet<String> {
    broker.declare_base().await.unwrap();
    broker.declare_tool(tool).await.unwrap();
    let messages: Vec<_> = (0..count).map(|_| message(tool)).collect();
    let results = publish(broker, &messages).await;
    assert!(results.iter().all(|result| *result == PublishResult::Confirmed), "{results:?}");
    messages.into_iter().map(|message| message.operation_key).collect()
}

fn tools(names: &[(&str, u16)]) -> Vec<(String, u16)> {
    names.iter().map(|(name, prefetch)| ((*name).to_owned(), *prefetch)).collect()
}

async fn receive(consumer: &mut Consumer, what: &str) -> Delivery {
    soon(what, consumer.recv()).await.expect("a delivery")
}

async fn event(
    events: &mut mpsc::Receiver<ConsumerEvent>,
    wanted: impl Fn(&ConsumerEvent) -> bool,
) -> ConsumerEvent {
    soon("an event", async {
        loop {
            let event = events.recv().await.expect("the consumer lives");
            if wanted(&event) {
                return event;
            }
        }
    })
    .await
}

// Publishing

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
    assert!(!refused.needs_new_connection(), "{refused}");

    let unbound = publish(&broker, &batch).await;
    assert!(unbound.iter().all(|result| *result == PublishResult::Unroutable), "{unbound:?}");
    broker.declare_tool("here").await.unwrap();
    let stored = publish(&broker, &batch).await;
    assert!(stored.iter().all(|result| *result == PublishResult::Confirmed), "{stored:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_broker_is_given_up_in_bounded_time() {
    let (login, host) = amqp_authority();
    let valve = Valve::open(&host).await;
    let prefix = format!("t{}.", Uuid::new_v4().simple());
    let settings = BrokerSettings {
        url: AmqpUrl::new(format!("amqp://{login}@{}", valve.address())),
        connect_timeout: Duration::from_secs(2),
        confirm_timeout: Duration::from_secs(2),
        ..settings(&prefix)
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
    assert!(error.needs_new_connection(), "{error}");
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
    let valve = Valve::open(&host).await;
    let through_valve = BrokerSettings {
        url: AmqpUrl::new(format!("amqp://{login}@{}", valve.address())),
        connect_timeout: Duration::from_millis(500),
        ..settings(&format!("t{}.", Uuid::new_v4().simple()))
    };
    let mut connected = Vec::new();
    for _ in 0..3 {
        connected.push(Broker::connect(&through_valve).await.unwrap());
    }
    assert!(library_threads() >= 3);
    valve.swallow_answers(true);
    for _ in 0..3 {
        Broker::connect(&through_valve).await.unwrap_err();
    }
    drop(connected);
    eventually("the threads end", async || library_threads() == 0).await;
}

fn library_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "lapin-io-loop").count()
}

// Consuming

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
    let valve = Valve::open(&host).await;
    let through_valve = BrokerSettings {
        url: AmqpUrl::new(format!("amqp://{login}@{}", valve.address())),
        ..settings(&broker.settings().prefix)
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
    let valve = Valve::open(&host).await;
    let through_valve = BrokerSettings {
        url: AmqpUrl::new(format!("amqp://{login}@{}", valve.address())),
        heartbeat: Duration::from_secs(1),
        ..settings(&format!("t{}.", Uuid::new_v4().simple()))
    };
    let consuming = Broker::connect(&through_valve).await.unwrap();
    let mut consumer = Consumer::start(&consuming, &tools(&[("a", 3)])).await.unwrap();
    valve.swallow_answers(true);
    let end = soon("two heartbeats", consumer.recv()).await.unwrap_err();
    assert!(matches!(end, ConsumerEnd::ConnectionLost(_)), "{end:?}");
}

// Messages that nobody should have sent

#[tokio::test(flavor = "multi_thread")]
async fn a_message_the_library_cannot_parse_arrives_and_so_does_the_good_one_behind_it() {
    let broker = fresh().await;
    broker.declare_base().await.unwrap();
    broker.declare_tool("a").await.unwrap();
    let consuming = connect(&broker.settings().prefix).await;
    let mut consumer = Consumer::start(&consuming, &tools(&[("a", 10)])).await.unwrap();
    for (name, properties) in strange_properties() {
        let mut raw = RawChannel::open(&amqp_url());
        assert!(
            raw.publish(&broker.names().operations(), "a", &properties, b"{\"v\":1}"),
            "{name}"
        );
        let good = publish_to(&broker, "a", 1).await;
        let bad = receive(&mut consumer, &name).await;
        assert_eq!(bad.message.body, b"{\"v\":1}", "{name}");
        assert!(bad.message.envelope().is_err(), "{name}");
        assert!(bad.message.headers_json().to_string().len() < 16_384, "{name}");
        bad.ack().await.unwrap();
        let next = receive(&mut consumer, &name).await;
        assert!(good.contains(&next.message.envelope().unwrap().operation_key), "{name}");
        next.ack().await.unwrap();
    }
    assert!(consuming.is_usable());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_routing_key_that_is_not_text_reaches_the_consumer() {
    let broker = fresh().await;
    broker.declare_base().await.unwrap();
    broker.declare_tool("a").await.unwrap();
    // A CC header routes the message to our queue under a key of the sender's choice.
    let copies =
        [&raw_amqp::short("CC")[..], b"A", &raw_amqp::long(b"S\x00\x00\x00\x01a")].concat();
    let mut raw = RawChannel::open(&amqp_url());
    let properties = raw_amqp::with_headers(&copies);
    assert!(raw.publish_bytes(&broker.names().operations(), b"\xff\xfe", &properties, b"{}"));
    let mut consumer = Consumer::start(&broker, &tools(&[("a", 10)])).await.unwrap();
    let delivery = receive(&mut consumer, "the message").await;
    assert_eq!(delivery.message.routing_key(), "??");
    delivery.ack().await.unwrap();
}

fn strange_properties() -> Vec<(String, Vec<u8>)> {
    let hex = |text: &str| -> Vec<u8> {
        let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(byte).collect()
    };
    let in_table = |name: &str, raw: &str| (name.to_owned(), raw_amqp::with_headers(&hex(raw)));
    let mut all = vec![
        in_table("AM04", "0d6f7065726174696f6e2d6b65795300000002fffe"),
        in_table("AM05", "0d6f7065726174696f6e2d6b657956"),
        in_table("AM06", "0d6f7065726174696f6e2d6b65796c000000000000002a"),
        in_table("AM07", "0d6f7065726174696f6e2d6b65797401"),
        in_table("AM08", "0d6f7065726174696f6e2d6b65797800000003616263"),
        in_table("a header's name is not UTF-8", "02fffe56"),
    ];
    for (name, flag) in [
        ("content type", raw_amqp::CONTENT_TYPE),
        ("message id", raw_amqp::MESSAGE_ID),
        ("type", raw_amqp::TYPE),
    ] {
        let mut properties = flag.to_be_bytes().to_vec();
        properties.extend(raw_amqp::short_bytes(b"\xff\xfe"));
        all.push((format!("the {name} is not UTF-8"), properties));
    }
    let mut timestamp = raw_amqp::TIMESTAMP.to_be_bytes().to_vec();
    timestamp.extend(u64::MAX.to_be_bytes());
    all.push(("AM23".to_owned(), timestamp));
    for depth in [50, 1000, 10_000] {
        let nest = |inner: Vec<u8>, _| [&b"\x00F"[..], &raw_amqp::long(&inner)].concat();
        let nested = (0..depth).fold(Vec::new(), nest);
        all.push((format!("nested {depth} deep"), raw_amqp::with_headers(&nested)));
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_keeps_coming_back_ends_in_the_dead_queue_and_is_drained() {
    let broker = fresh().await;
    let sent = publish_to(&broker, "a", 1).await;
    for _ in 0..=DELIVERY_LIMIT {
        // A connection that goes away without an answer is what a killed worker looks like.
        let consuming = connect(&broker.settings().prefix).await;
        let mut consumer = Consumer::start(&consuming, &tools(&[("a", 1)])).await.unwrap();
        let delivery = receive(&mut consumer, "the message, again").await;
        drop((delivery, consumer));
        consuming.close().await;
    }
    let drain = DeadQueue::open(&connect(&broker.settings().prefix).await).await.unwrap();
    let dead = soon("the dead letter", drain.next_dead(SOON)).await.unwrap().expect("it is there");
    assert_eq!(dead.original_queue.as_deref(), Some(broker.names().tool("a").as_str()));
    assert_eq!(dead.reason.as_deref(), Some("delivery_limit"));
    assert!(dead.message_id.is_some());
    let envelope = oncebox::broker::read_envelope(None, None, &dead.body).unwrap();
    assert!(sent.contains(&envelope.operation_key));
    assert_eq!(dead.ack().await.unwrap(), AckResult::Acked);
    assert!(drain.next_dead(Duration::ZERO).await.unwrap().is_none());
    assert_eq!(broker.dead_count().await.unwrap(), 0);
    assert_eq!(broker.unreadable_count().await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_cannot_loop() {
    let broker = fresh().await;
    broker.declare_base().await.unwrap();
    let mut raw = RawChannel::open(&amqp_url());
    let properties = raw_amqp::with_headers(b"");
    assert!(raw.publish(&broker.names().dead(), "a", &properties, b"never taken"));
    let mut tries = 0;
    while broker.unreadable_count().await.unwrap() == 0 {
        let own = connect(&broker.settings().prefix).await;
        let drain = DeadQueue::open(&own).await.unwrap();
        let letter = drain.next_dead(Duration::from_secs(1)).await.unwrap();
        tries += u32::from(letter.is_some());
        assert!(tries < 50, "it keeps coming back");
        drop((letter, drain));
        own.close().await;
    }
    assert_eq!(broker.dead_count().await.unwrap(), 0);
}

// Node-wide faults. Run them alone: `cargo nextest run -j 1 --run-ignored only node_wide`, with
// RABBITMQCTL naming a command that runs rabbitmqctl on the tests' broker.

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
        ..settings(&broker.settings().prefix)
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

// Settings

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_work_is_said_without_secrets() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let with_url = |url: String| BrokerSettings { url: AmqpUrl::new(url), ..settings("t.") };
    for (url, settled) in [
        (format!("amqp://guest:hunter2@{closed}"), false),
        (format!("amqp://nobody:hunter2@{}", amqp_authority().1), false),
        ("http://guest:hunter2@127.0.0.1".to_owned(), true),
        ("hunter2".to_owned(), true),
    ] {
        let settings = with_url(url);
        let error = soon("an answer", Broker::connect(&settings)).await.unwrap_err();
        assert_eq!(matches!(error, BrokerError::Settings { .. }), settled, "{error}");
        let shown = format!("{error} {error:?} {settings:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let wrong_login = with_url(format!("amqp://nobody:hunter2@{}", amqp_authority().1));
    let error = Broker::connect(&wrong_login).await.unwrap_err();
    assert!(matches!(error, BrokerError::Refused { .. }), "{error}");
    let broker = fresh().await;
    for tool in ["dead", "results", "operations", "unreadable", "", "a*", "#", "A"] {
        let error = broker.declare_tool(tool).await.unwrap_err();
        assert!(matches!(error, BrokerError::Settings { .. }), "{tool}: {error}");
    }
    let missing = broker.ready_count("missing").await.unwrap_err();
    assert!(matches!(missing, BrokerError::Missing { .. }), "{missing}");
    broker.declare_base().await.unwrap();
    broker.declare_tool("present").await.unwrap();
    assert_eq!(broker.ready_count("present").await.unwrap(), 0);
}

async fn side_channel() -> lapin::Channel {
    let connection = lapin::Connection::connect(&amqp_url(), Default::default()).await.unwrap();
    // The channel keeps the connection open.
    connection.create_channel().await.unwrap()
}

async fn delete_on_the_side(broker: &Broker, delete: impl AsyncFnOnce(&lapin::Channel)) {
    assert!(broker.is_usable());
    delete(&side_channel().await).await;
}
