//! Before the first byte: what is provably not sent.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::super::client::Connections;
use super::kit::{
    applied, call, gate, http, open, plain_client, request, send, send_with, until, untouched,
};
use super::server::{PATIENCE, Server, Step, answer};
use crate::domain::attempt::{Ambiguity, Learned, NotSent};
use crate::domain::contract::HttpRequest;

fn not_sent(why: NotSent) -> Learned {
    Learned::NotSent(why)
}

#[tokio::test]
async fn nothing_listening_is_not_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let learned = send(&plain_client(), addr, untouched()).await;
    assert_eq!(learned, not_sent(NotSent::Unreachable));
}

/// No name is sent into the world: `.invalid` resolves nowhere (RFC 6761).
#[tokio::test]
async fn a_host_without_an_address_is_not_sent() {
    let mut rendered = request(([127, 0, 0, 1], 1).into());
    rendered.url = "http://nowhere.invalid/".to_owned();
    let client = plain_client();
    let sent = client.send(&call(), rendered, &http(), Connections::Kept, untouched()).await;
    assert_eq!(sent.into_learned(), not_sent(NotSent::Unreachable));
}

#[tokio::test]
async fn a_connection_that_closes_before_the_gate_opens_is_not_sent() {
    let server = Server::start(vec![vec![Step::Wait, Step::Close]]).await;
    let closing = Arc::clone(&server);
    let slow_gate = gate(async move {
        closing.go_on();
        closing.ended(1).await;
        until(Instant::now() + PATIENCE)
    });
    let learned = send(&plain_client(), server.addr, slow_gate).await;
    assert_eq!(learned, not_sent(NotSent::Unreachable));
    assert_eq!(server.bytes(), [0], "and it is not tried again elsewhere");
}

#[tokio::test]
async fn a_closed_gate_lets_no_byte_through() {
    for why in [NotSent::ClaimLost, NotSent::LeaseTooShort, NotSent::Draining] {
        let server = Server::start(vec![vec![]]).await;
        let client = plain_client();
        let learned = send(&client, server.addr, gate(async move { Err(why) })).await;
        assert_eq!(learned, not_sent(why));
        drop(client);
        server.ended(1).await;
        assert_eq!(server.bytes(), [0]);
    }
}

/// The gate opened, but by the time of the first write its time is over: at that very instant, or
/// long before.
#[tokio::test]
async fn after_send_before_no_byte_leaves() {
    for past in [Duration::ZERO, Duration::from_secs(5)] {
        let server = Server::start(vec![vec![]]).await;
        let client = plain_client();
        let late = gate(async move { until(Instant::now().checked_sub(past).unwrap()) });
        let learned = send(&client, server.addr, late).await;
        assert_eq!(learned, not_sent(NotSent::LeaseTooShort));
        drop(client);
        server.ended(1).await;
        assert_eq!(server.bytes(), [0]);
    }
}

/// A lease that ends while the answer is awaited takes nothing back: the time-out decides.
#[tokio::test]
async fn an_answer_after_send_before_counts() {
    let server = Server::start(vec![vec![
        Step::Request,
        Step::Wait,
        answer("200 OK", "", "{\"ticket_id\":\"T-1\"}"),
    ]])
    .await;
    let (opened, opening) = oneshot::channel();
    let soon = gate(async move {
        let send_before = Instant::now() + Duration::from_millis(300);
        opened.send(send_before).unwrap();
        until(send_before)
    });
    let answering = Arc::clone(&server);
    tokio::spawn(async move {
        tokio::time::sleep_until(opening.await.unwrap() + Duration::from_millis(1)).await;
        answering.go_on();
    });
    assert_eq!(send(&plain_client(), server.addr, soon).await, applied());
}

/// A downstream that does not read: the write stops with the time-out, and the request is never
/// completed behind our back.
#[tokio::test]
async fn a_blocked_write_ends_with_the_time_out() {
    let server = Server::start(vec![vec![Step::Wait]]).await;
    let hasty = HttpRequest { timeout: Duration::from_millis(300), ..http() };
    let mut rendered = request(server.addr);
    let size = 64 * 1024 * 1024;
    rendered.body = Some(vec![b' '; size]);
    let client = plain_client();
    let sent = client.send(&call(), rendered, &hasty, Connections::Kept, open()).await;
    assert_eq!(sent.into_learned(), Learned::Ambiguous(Ambiguity::TimedOut));
    server.go_on();
    server.ended(1).await;
    let arrived = server.bytes()[0];
    assert!(0 < arrived && arrived < size, "{arrived} of {size} bytes");
}

/// Nobody else drives the connection: a call that is dropped writes nothing more.
#[tokio::test]
async fn a_dropped_call_closes_its_connection() {
    let server = Server::start(vec![vec![Step::Request]]).await;
    let client = plain_client();
    let (addr, terms) = (server.addr, http());
    let dropped = timeout(Duration::from_millis(100), send_with(&client, addr, &terms, open()));
    assert!(dropped.await.is_err());
    server.ended(1).await;
    assert_eq!(server.received()[0].matches("POST ").count(), 1);
}
