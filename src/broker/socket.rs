//! Opening the TCP connection with a deadline, and a way to end it for good.
//!
//! The client library runs each connection on a thread of its own that waits for its socket. A
//! handshake that never comes, or a close that a vanished peer never answers, would keep that thread
//! for ever; shutting the socket down is the one thing that always ends it.

use std::{
    net::{Shutdown, TcpStream},
    os::fd::AsFd,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lapin::{
    AsyncTcpStream, Connection, ConnectionProperties,
    tcp::{AMQPUriTcpExt, OwnedTLSConfig},
    uri::{AMQPScheme, AMQPUri},
};

/// A second handle on a connection's socket.
#[derive(Clone, Debug, Default)]
pub(super) struct Socket(Arc<Mutex<Option<TcpStream>>>);

impl Socket {
    fn keep(&self, stream: TcpStream) {
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
    let runtime = lapin::runtime::default_runtime()?;
    // Written in place, because the runtime's type has no name outside the client library and is
    // known here from the argument before.
    Connection::connector(
        uri,
        runtime,
        async move |uri, runtime| {
            let open = async {
                // Plain first in any case, so that the raw socket can be kept before TLS hides it.
                let plain = AMQPUri { scheme: AMQPScheme::AMQP, ..uri.clone() };
                let no_tls = OwnedTLSConfig::default();
                let stream = plain.connect_with_config_async(no_tls.as_ref(), &runtime).await?;
                if let AsyncTcpStream::Plain(stream) = &stream {
                    socket.keep(stream.get_ref().as_fd().try_clone_to_owned()?.into());
                }
                match uri.scheme {
                    AMQPScheme::AMQP => Ok(stream),
                    AMQPScheme::AMQPS => {
                        stream.into_tls(&uri.authority.host, no_tls.as_ref()).await
                    }
                }
            };
            match tokio::time::timeout(connect_timeout, open).await {
                Ok(opened) => opened.map_err(lapin::Error::from),
                Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
            }
        },
        properties,
    )
    .await
}
