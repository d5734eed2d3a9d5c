//! The same over TLS: a handshake that fails has sent nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::super::client::Connections;
use super::kit::{applied, call, client, gate, http, open, request, until, untouched};
use crate::domain::attempt::{Learned, NotSent};
use crate::domain::contract::HttpRequest;
use crate::tool::Gate;

/// A certificate for `localhost` and 127.0.0.1, good from 2020 to 2119, with its key. It is
/// trusted by nothing but these tests.
const PEM: &[u8] = include_bytes!("localhost.pem");

/// Answers every request with a ticket. The task's value is what its one connection received.
async fn serve() -> (SocketAddr, tokio::task::JoinHandle<String>) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(PEM).unwrap()],
            PrivateKeyDer::from_pem_slice(PEM).unwrap(),
        )
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let served = tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        let mut text = String::new();
        let Ok(mut tls) = TlsAcceptor::from(Arc::new(config)).accept(tcp).await else {
            return text;
        };
        while !text.ends_with("{\"subject\":\"hot\"}") {
            let mut chunk = [0; 4096];
            match tls.read(&mut chunk).await {
                Ok(0) | Err(_) => return text,
                Ok(length) => text.push_str(&String::from_utf8_lossy(&chunk[..length])),
            }
        }
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 19\r\n\r\n{\"ticket_id\":\"T-1\"}";
        tls.write_all(answer).await.unwrap();
        tls.flush().await.unwrap();
        text
    });
    (addr, served)
}

async fn send(roots: RootCertStore, addr: SocketAddr, gate: Gate) -> Learned {
    send_with(roots, addr, &http(), gate).await
}

async fn send_with(
    roots: RootCertStore,
    addr: SocketAddr,
    http: &HttpRequest,
    gate: Gate,
) -> Learned {
    let mut rendered = request(addr);
    rendered.url = format!("https://localhost:{}/tickets", addr.port());
    let client = client(roots).unwrap();
    client.send(&call(), rendered, http, Connections::Kept, gate).await.into_learned()
}

fn trusted() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(PEM).unwrap()).unwrap();
    roots
}

#[tokio::test]
async fn a_trusted_downstream_is_called() {
    let (addr, served) = serve().await;
    assert_eq!(send(trusted(), addr, open()).await, applied());
    assert!(served.await.unwrap().contains(&format!("host: localhost:{}\r\n", addr.port())));
}

#[tokio::test]
async fn an_untrusted_downstream_gets_no_request() {
    let (addr, served) = serve().await;
    let learned = send(RootCertStore::empty(), addr, untouched()).await;
    assert_eq!(learned, Learned::NotSent(NotSent::Unreachable));
    assert_eq!(served.await.unwrap(), "");
}

#[tokio::test]
async fn a_handshake_that_hangs_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hasty = HttpRequest { timeout: Duration::from_millis(150), ..http() };
    let learned = send_with(trusted(), silent.local_addr().unwrap(), &hasty, untouched()).await;
    assert_eq!(learned, Learned::NotSent(NotSent::Unreachable));
}

/// The handshake's bytes are not the request's: the bound holds for the first byte after them.
#[tokio::test]
async fn the_gate_holds_behind_the_handshake() {
    let (addr, served) = serve().await;
    let late = gate(async { until(tokio::time::Instant::now()) });
    assert_eq!(send(trusted(), addr, late).await, Learned::NotSent(NotSent::LeaseTooShort));
    assert_eq!(served.await.unwrap(), "");
}
