//! Kept connections: used where a lost request can be sent again, never where it cannot.

use std::sync::Arc;

use tokio::time::Instant;

use super::super::HttpClient;
use super::super::client::Connections;
use super::kit::{applied, call, gate, http, open, plain_client, request, send, until};
use super::server::{PATIENCE, Server, Step, answer};
use crate::domain::attempt::{Ambiguity, Learned, NotSent};

fn ticket() -> Step {
    answer("200 OK", "", "{\"ticket_id\":\"T-1\"}")
}

fn requests(server: &Server) -> Vec<usize> {
    server.received().iter().map(|text| text.matches("POST ").count()).collect()
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let script = vec![[Step::Request, ticket()]; 3].concat();
    let server = Server::start(vec![script]).await;
    let client = plain_client();
    for _ in 0..3 {
        assert_eq!(send(&client, server.addr, open()).await, applied());
    }
    assert_eq!(requests(&server), [3]);
}

/// A gate that stays closed costs no connection.
#[tokio::test]
async fn a_connection_that_was_not_needed_is_kept() {
    let server = Server::start(vec![vec![Step::Request, ticket()]]).await;
    let client = plain_client();
    let closed = gate(async { Err(NotSent::Draining) });
    assert_eq!(send(&client, server.addr, closed).await, Learned::NotSent(NotSent::Draining));
    assert_eq!(send(&client, server.addr, open()).await, applied());
    assert_eq!(requests(&server), [1]);
}

#[tokio::test]
async fn a_connection_closed_while_idle_is_replaced_before_the_gate() {
    let first = vec![Step::Request, ticket(), Step::Wait, Step::Close];
    let server = Server::start(vec![first, vec![Step::Request, ticket()]]).await;
    let client = plain_client();
    assert_eq!(send(&client, server.addr, open()).await, applied());
    server.go_on();
    server.ended(1).await;
    let watching = Arc::clone(&server);
    let second = gate(async move {
        watching.accepted(2).await; // the replacement stands ready
        until(Instant::now() + PATIENCE)
    });
    assert_eq!(send(&client, server.addr, second).await, applied());
    assert_eq!(requests(&server), [1, 1]);
}

/// The sent mark is being written when the downstream closes: no byte has left, so the one send
/// that was allowed still is the first.
#[tokio::test]
async fn a_connection_closed_behind_the_gate_is_replaced_once() {
    let first = vec![Step::Request, ticket(), Step::Wait, Step::Close];
    let server = Server::start(vec![first, vec![Step::Request, ticket()]]).await;
    let client = plain_client();
    assert_eq!(send(&client, server.addr, open()).await, applied());
    assert_eq!(send(&client, server.addr, closing_gate(&server)).await, applied());
    assert_eq!(requests(&server), [1, 1]);
}

#[tokio::test]
async fn without_a_replacement_nothing_was_sent() {
    let first = vec![Step::Request, ticket(), Step::Wait, Step::Close];
    let server = Server::start(vec![first]).await;
    let client = plain_client();
    assert_eq!(send(&client, server.addr, open()).await, applied());
    server.stop_listening().await;
    let learned = send(&client, server.addr, closing_gate(&server)).await;
    assert_eq!(learned, Learned::NotSent(NotSent::Unreachable));
    assert_eq!(requests(&server), [1]);
}

/// Once a byte has left there is no second send, on no connection.
#[tokio::test]
async fn a_request_lost_on_a_kept_connection_is_not_repeated() {
    let dies = vec![Step::Request, ticket(), Step::Request, Step::Close];
    let server = Server::start(vec![dies, vec![Step::Request, ticket()]]).await;
    let client = plain_client();
    assert_eq!(send(&client, server.addr, open()).await, applied());
    let learned = send(&client, server.addr, open()).await;
    assert_eq!(learned, Learned::Ambiguous(Ambiguity::Broken));
    assert_eq!(requests(&server), [2]);
}

#[tokio::test]
async fn a_blind_tool_gets_a_new_connection_each_time() {
    let server = Server::start(vec![vec![Step::Request, ticket()]; 3]).await;
    let client = plain_client();
    assert_eq!(send(&client, server.addr, open()).await, applied());
    for _ in 0..2 {
        assert_eq!(blind(&client, &server).await, applied());
    }
    assert_eq!(requests(&server), [1, 1, 1], "not even another tool's kept connection is used");
    let last = |text: &String| text.contains("connection: close\r\n");
    assert_eq!(server.received().iter().map(last).collect::<Vec<_>>(), [false, true, true]);
}

async fn blind(client: &HttpClient, server: &Server) -> Learned {
    let rendered = request(server.addr);
    client.send(&call(), rendered, &http(), Connections::Fresh, open()).await.into_learned()
}

/// Opens after the downstream has closed its first connection.
fn closing_gate(server: &Arc<Server>) -> crate::tool::Gate {
    let server = Arc::clone(server);
    gate(async move {
        server.go_on();
        server.ended(1).await;
        until(Instant::now() + PATIENCE)
    })
}
