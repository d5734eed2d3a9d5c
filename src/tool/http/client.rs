//! The way of one call: build, connect, open the gate, send, judge.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use tokio::time::{Instant, timeout_at};

use super::connect::{Connector, Origin, TlsSetupError};
use super::connection::{Connection, Exchange};
use super::pool::Pool;
use super::request::{Prepared, RenderedRequest};
use super::spec::HttpCallSpec;
use crate::domain::attempt::NotSent;
use crate::tool::{Attempted, Call, Gate, Sending};

/// Longest wait for a connection, TLS included. Long enough for one lost SYN (repeated after 1 s
/// and 3 s), short beside the default lease (30 s), which runs meanwhile.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Calls downstreams for every HTTP tool of a process, which share its kept connections.
pub struct HttpClient {
    connector: Connector,
    pool: Pool,
}

/// A connection, and whether it has carried requests before.
struct Taken {
    connection: Connection,
    kept: bool,
}

impl HttpClient {
    /// A client that trusts the machine's root certificates.
    ///
    /// # Errors
    /// When TLS cannot be set up at all. Missing certificates are only warned of.
    pub fn system() -> Result<Self, TlsSetupError> {
        Connector::system().map(Self::new)
    }

    pub(super) fn new(connector: Connector) -> Self {
        Self { connector, pool: Pool::default() }
    }

    /// Makes the call once. The gate is asked when a connection stands ready, so that nothing but
    /// the write comes after its last look at the lease.
    pub async fn send(
        &self,
        call: &Call,
        rendered: RenderedRequest,
        spec: &HttpCallSpec,
        gate: Gate,
    ) -> Attempted {
        let built = rendered.prepare(call.traceparent.as_deref(), spec.fresh_connection);
        let Prepared { origin, request } = match built {
            Ok(prepared) => prepared,
            Err(why) => {
                tracing::warn!(operation_id = %call.operation_id, tool = call.tool, %why, "request cannot be built");
                return Attempted::not_sent(NotSent::Unbuildable);
            }
        };
        let taken = match self.take(&origin, spec).await {
            Ok(taken) => taken,
            Err(error) => {
                unreachable_downstream(call, &error);
                return Attempted::not_sent(NotSent::Unreachable);
            }
        };
        match gate.open().await {
            Ok(sending) => self.exchange(call, origin, request, spec, taken, sending).await,
            Err(closed) => {
                self.give_back(origin, taken.connection, spec);
                closed
            }
        }
    }

    async fn exchange(
        &self,
        call: &Call,
        origin: Origin,
        request: Request<Full<Bytes>>,
        spec: &HttpCallSpec,
        Taken { mut connection, kept }: Taken,
        sending: Sending,
    ) -> Attempted {
        let send_before = sending.send_before();
        let spare = kept.then(|| request.clone());
        let mut ended = connection.exchange(request, send_before, spec).await;
        // A kept connection that died unseen took nothing with it, so this is still the first send.
        if let (Exchange::NothingLeft { late: false }, Some(request)) = (&ended, spare) {
            connection = match self.connect(&origin, send_before).await {
                Ok(fresh) => fresh,
                Err(error) => {
                    unreachable_downstream(call, &error);
                    return sending.not_sent(NotSent::Unreachable);
                }
            };
            ended = connection.exchange(request, send_before, spec).await;
        }
        match ended {
            Exchange::Answered(answer) => {
                self.give_back(origin, connection, spec);
                answer.judge(call.operation_id, spec, sending)
            }
            Exchange::NothingLeft { late: true } => sending.not_sent(NotSent::LeaseTooShort),
            Exchange::NothingLeft { late: false } => sending.not_sent(NotSent::Unreachable),
            Exchange::Lost(why) => sending.ambiguous(why),
        }
    }

    async fn take(&self, origin: &Origin, spec: &HttpCallSpec) -> io::Result<Taken> {
        let kept = if spec.fresh_connection { None } else { self.pool.take(origin) };
        if let Some(connection) = kept {
            return Ok(Taken { connection, kept: true });
        }
        let deadline = Instant::now() + spec.timeout;
        Ok(Taken { connection: self.connect(origin, deadline).await?, kept: false })
    }

    async fn connect(&self, origin: &Origin, deadline: Instant) -> io::Result<Connection> {
        let deadline = deadline.min(Instant::now() + CONNECT_TIMEOUT);
        timeout_at(deadline, Connection::open(&self.connector, origin)).await?
    }

    fn give_back(&self, origin: Origin, connection: Connection, spec: &HttpCallSpec) {
        if !spec.fresh_connection {
            self.pool.put(origin, connection);
        }
    }
}

/// The cause is logged here because the result keeps only its kind. It names no more than the
/// host, never the URL.
fn unreachable_downstream(call: &Call, error: &io::Error) {
    tracing::warn!(operation_id = %call.operation_id, tool = call.tool, %error, "downstream not reachable");
}
