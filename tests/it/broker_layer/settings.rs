//! What cannot work is refused by name, and no secret is ever shown.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_work_is_said_without_secrets() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let with_url = |url: String| BrokerSettings { url: AmqpUrl::new(url), ..settings_for("t.") };
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
