//! Making connections to a downstream. Whatever fails here, no byte of a request has left.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use super::wire::{Gauge, Wire};

/// Whom a connection leads to. Never taken from arguments: the contract fixes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub(super) tls: bool,
    /// A name or an address; an IPv6 address without its brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

/// TLS could not be set up in this process.
#[derive(Debug, Error)]
#[error("TLS towards downstreams could not be set up; no HTTP tool can be served")]
pub struct TlsSetupError(#[from] rustls::Error);

/// What HTTP is spoken over.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Connects directly. Proxy settings in the environment are ignored on purpose: an operation's
/// parameters must not take a way that no contract names.
pub(super) struct Connector {
    tls: Arc<ClientConfig>,
}

impl Connector {
    /// Trusts `roots`.
    pub(super) fn new(roots: RootCertStore) -> Result<Self, TlsSetupError> {
        // Named, because a process that links two crypto providers has no default one.
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { tls: Arc::new(config) })
    }

    /// Trusts what the machine trusts.
    pub(super) fn system() -> Result<Self, TlsSetupError> {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (usable, _) = roots.add_parsable_certificates(found.certs);
        if usable == 0 {
            tracing::warn!(
                problems = found.errors.len(),
                "no trusted root certificates found: every https downstream will be unreachable"
            );
        }
        Self::new(roots)
    }

    /// Connects, TLS handshake included, or gives up at `deadline`.
    pub(super) async fn connect(
        &self,
        origin: &Origin,
        deadline: Instant,
    ) -> io::Result<(Box<dyn Stream>, Arc<Gauge>)> {
        timeout_at(deadline, async {
            let tcp = dial(origin, deadline).await?;
            // Without this a request in two writes could wait for a delayed ACK.
            tcp.set_nodelay(true)?;
            let gauge = Arc::new(Gauge::default());
            let wire = Wire::new(tcp, Arc::clone(&gauge));
            if !origin.tls {
                return Ok((Box::new(wire) as Box<dyn Stream>, gauge));
            }
            let name = ServerName::try_from(origin.host.clone())
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
            let stream = TlsConnector::from(Arc::clone(&self.tls)).connect(name, wire).await?;
            Ok((Box::new(stream) as Box<dyn Stream>, gauge))
        })
        .await?
    }
}

/// Tries the host's addresses in turn. Each gets an equal share of the time that is left, so that
/// one which swallows packets does not make the others unreachable.
async fn dial(origin: &Origin, deadline: Instant) -> io::Result<TcpStream> {
    let found = lookup_host((origin.host.as_str(), origin.port)).await?;
    let addresses: Vec<SocketAddr> = found.collect();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for (address, left) in addresses.iter().zip((1..=addresses.len()).rev()) {
        let time = deadline.saturating_duration_since(Instant::now());
        let share = time / u32::try_from(left).unwrap_or(u32::MAX);
        let dialled = timeout(share, TcpStream::connect(address)).await;
        match dialled.unwrap_or_else(|late| Err(io::Error::from(late))) {
            Ok(tcp) => return Ok(tcp),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}
