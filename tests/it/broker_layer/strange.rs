//! A message that should not exist is delivered or moved out of the way, and never costs a neighbour.

use super::*;

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
