//! One call against a server, with a guard that the test decides.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use rustls::RootCertStore;
use tokio::time::Instant;
use uuid::Uuid;

use super::super::client::Connections;
use super::super::connect::Connector;
use super::super::{HttpClient, TlsSetupError};
use crate::domain::attempt::{Effect, Learned, NotSent, Receipt, Response};
use crate::domain::contract::template::{RenderedRequest, UrlTemplate};
use crate::domain::contract::{HttpRequest, Method};
use crate::domain::json::Json;
use crate::domain::pointer::Pointer;
use crate::tool::{Call, Gate, SendGuard, SendWindow};

/// A guard made of a future.
pub(super) struct Guard(Option<BoxFuture<'static, Result<SendWindow, NotSent>>>);

#[async_trait]
impl SendGuard for Guard {
    async fn open(&mut self) -> Result<SendWindow, NotSent> {
        self.0.take().expect("a gate opens once").await
    }
}

/// Opens with what `asked` answers.
pub(super) fn gate(
    asked: impl Future<Output = Result<SendWindow, NotSent>> + Send + 'static,
) -> Gate {
    Gate::new(Guard(Some(asked.boxed())))
}

pub(super) fn open() -> Gate {
    gate(async { until(Instant::now() + Duration::from_secs(20)) })
}

/// A gate that must stay shut.
pub(super) fn untouched() -> Gate {
    gate(async { panic!("the gate was asked") })
}

pub(super) fn until(send_before: Instant) -> Result<SendWindow, NotSent> {
    Ok(SendWindow { send_before })
}

pub(super) fn client(roots: RootCertStore) -> Result<Arc<HttpClient>, TlsSetupError> {
    Ok(Arc::new(HttpClient::new(Connector::new(roots)?)))
}

pub(super) fn plain_client() -> Arc<HttpClient> {
    client(RootCertStore::empty()).unwrap()
}

pub(super) fn call() -> Call {
    Call {
        operation_id: Uuid::from_u128(7),
        tenant: "acme".to_owned(),
        environment: "test".to_owned(),
        tool: "tickets.create".to_owned(),
        tool_version: "1".to_owned(),
        arguments: Arc::new(Json::Object(vec![("subject".into(), Json::String("hot".into()))])),
        idempotency_key: "key-1".to_owned(),
        resend: false,
        attempt: 1,
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
        actor: None,
        job: None,
        receipt: None,
    }
}

/// The answers of a ticket service.
pub(super) fn http() -> HttpRequest {
    HttpRequest {
        method: Method::Post,
        url: UrlTemplate::parse("http://127.0.0.1/tickets").unwrap(),
        headers: Vec::new(),
        body: None,
        timeout: Duration::from_secs(5),
        applied: vec![200, 201],
        accepted: Vec::new(),
        already: vec![404],
        refused: vec![400, 422],
        not_now: vec![429],
        receipt: Some(Pointer::parse("/ticket_id").unwrap()),
        response: vec![
            Pointer::parse("/ticket_id").unwrap(),
            Pointer::parse("/detail/status").unwrap(),
        ],
        job: None,
    }
}

pub(super) fn request(addr: SocketAddr) -> RenderedRequest {
    RenderedRequest {
        method: Method::Post,
        url: format!("http://{addr}/tickets?q=1"),
        headers: vec![("Content-Type".to_owned(), "application/json".to_owned())],
        body: Some(b"{\"subject\":\"hot\"}".to_vec()),
    }
}

/// Calls once over a connection that may be kept.
pub(super) async fn send(client: &HttpClient, addr: SocketAddr, gate: Gate) -> Learned {
    send_with(client, addr, &http(), gate).await
}

pub(super) async fn send_with(
    client: &HttpClient,
    addr: SocketAddr,
    http: &HttpRequest,
    gate: Gate,
) -> Learned {
    let sent = client.send(&call(), request(addr), http, Connections::Kept, gate).await;
    sent.into_learned()
}

/// The answer of [`applied`], as it is learned.
pub(super) fn applied() -> Learned {
    Learned::Applied(effect("T-1", "{\"/ticket_id\":\"T-1\"}"))
}

pub(super) fn effect(receipt: &str, response: &str) -> Effect {
    Effect {
        receipt: Receipt::new(receipt).unwrap(),
        response: Response::keep(response.to_owned()),
    }
}
