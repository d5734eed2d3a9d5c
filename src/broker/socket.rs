//! Opening the TCP or TLS connection with a deadline, and a way to end it for good.
//!
//! The client library runs each connection on a thread of its own that waits for its socket. A
//! handshake that never comes, or a close that a vanished peer never answers, would keep that thread
//! for ever; shutting the socket down is the one thing that always ends it.

use std::{
    io,
    net::{Shutdown, TcpStream as StdStream},
    os::fd::AsFd,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_rs::{Runtime, util::RuntimeParts};
use lapin::{
    AsyncTcpStream, Connection, ConnectionProperties,
    uri::{AMQPScheme, AMQPUri},
};
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::guarded_stream::{GuardedReactor, GuardedStream};

/// A second handle on a connection's socket.
#[derive(Clone, Debug, Default)]
pub(super) struct Socket(Arc<Mutex<Option<StdStream>>>);

impl Socket {
    fn keep(&self, stream: StdStream) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
    }

    /// Ends the TCP connection in both directions. Harmless when it has ended already.
    pub(super) fn shut_down(&self) {
        if let Some(stream) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
            && let Err(error) = stream.shutdown(Shutdown::Both)
        {
            tracing::debug!(%error, "the broker's socket was closed already");
        }
    }

    /// Ends the TCP connection later, when an orderly close has had its time.
    pub(super) fn shut_down_after(self, grace: Duration) {
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                tokio::time::sleep(grace).await;
                self.shut_down();
            });
        } else {
            self.shut_down();
        }
    }
}

/// Connects and logs in. The caller sets the deadline for the whole; `connect_timeout` here bounds
/// the part that runs on the library's thread.
pub(super) async fn dial(
    uri: AMQPUri,
    properties: ConnectionProperties,
    connect_timeout: Duration,
    socket: Socket,
) -> lapin::Result<Connection> {
    let tokio = async_rs::Tokio::current();
    let runtime = Runtime::new(RuntimeParts::new(tokio.clone(), GuardedReactor::new(tokio)));
    let connect = async move |uri: AMQPUri, _runtime| match tokio::time::timeout(
        connect_timeout,
        open(&uri, &socket),
    )
    .await
    {
        Ok(Ok(stream)) => Ok(AsyncTcpStream::Plain(stream)),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
    };
    Connection::connector(uri, runtime, connect, properties).await
}

async fn open(uri: &AMQPUri, socket: &Socket) -> io::Result<GuardedStream> {
    let host = uri.authority.host.as_str();
    let stream = TcpStream::connect((host, uri.authority.port)).await?;
    stream.set_nodelay(true)?;
    socket.keep(stream.as_fd().try_clone_to_owned()?.into());
    match uri.scheme {
        AMQPScheme::AMQP => Ok(GuardedStream::plain(stream)),
        AMQPScheme::AMQPS => {
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            Ok(GuardedStream::tls(tls_connector()?.connect(name, stream).await?))
        }
    }
}

/// Trusts what the machine trusts (`SSL_CERT_FILE` names another set).
pub(super) fn tls_connector() -> io::Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        return Err(io::Error::other("no trusted certificate authority found on this machine"));
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
