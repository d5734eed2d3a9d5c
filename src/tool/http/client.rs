//! The way of one call: build, connect, open the gate, send, judge. And of one question, which needs
//! no gate.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, StatusCode};
use tokio::time::Instant;
use uuid::Uuid;

use super::answer::Answer;
use super::connect::{Connector, Origin, TlsSetupError};
use super::connection::{Connection, Exchange, Wanted};
use super::meaning::Meaning;
use super::pool::Pool;
use super::request::{Prepared, prepare};
use crate::domain::attempt::{Ambiguity, NotSent};
use crate::domain::contract::HttpRequest;
use crate::domain::contract::template::RenderedRequest;
use crate::domain::evidence::Blank;
use crate::tool::{Attempted, Call, Gate, Sending};

/// Longest wait for a connection, TLS included. Long enough for one lost SYN (repeated after 1 s
/// and 3 s), short beside the default lease (30 s), which runs meanwhile.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Calls downstreams for every HTTP tool of a process, which share its kept connections.
pub struct HttpClient {
    connector: Connector,
    pool: Pool,
}

/// Whether a call may use a connection that has been idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Connections {
    /// The tool can recover from a request that was lost with a dying connection.
    Kept,
    /// It cannot: each call gets a connection of its own.
    Fresh,
}

/// Whose request it is, for the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) operation_id: Uuid,
    pub(super) tool: &'a str,
    pub(super) traceparent: Option<&'a str>,
}

impl<'a> About<'a> {
    pub(super) fn of(call: &'a Call) -> Self {
        let Call { operation_id, tool, traceparent, .. } = call;
        Self { operation_id: *operation_id, tool, traceparent: traceparent.as_deref() }
    }
}

/// One call on its way.
struct Journey<'a> {
    client: &'a HttpClient,
    call: &'a Call,
    http: &'a HttpRequest,
    connections: Connections,
    origin: Origin,
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
    pub(super) async fn send(
        &self,
        call: &Call,
        rendered: RenderedRequest,
        http: &HttpRequest,
        connections: Connections,
        gate: Gate,
    ) -> Attempted {
        let last = connections == Connections::Fresh;
        let Prepared { origin, request } = match prepare(
            rendered,
            call.traceparent.as_deref(),
            last,
        ) {
            Ok(prepared) => prepared,
            Err(why) => {
                let operation_id = call.operation_id;
                tracing::warn!(%operation_id, tool = call.tool, %why, "request cannot be built");
                return Attempted::not_sent(NotSent::Unbuildable);
            }
        };
        let journey = Journey { client: self, call, http, connections, origin };
        let Some(taken) = journey.take().await else {
            return Attempted::not_sent(NotSent::Unreachable);
        };
        match gate.open().await {
            Ok(sending) => journey.exchange(request, taken, sending).await,
            Err(closed) => {
                journey.give_back(taken.connection);
                closed
            }
        }
    }

    /// Asks a question and reads the answer whole. `patience` is for all of it, connecting included.
    ///
    /// Nothing is changed by asking, so a kept connection that turns out to be dead is replaced once,
    /// even if the question may have reached the other side. Redirects are answers like others.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(super) async fn ask(
        &self,
        about: About<'_>,
        rendered: RenderedRequest,
        patience: Duration,
    ) -> Result<Answer, Blank> {
        let About { operation_id, tool, traceparent } = about;
        let deadline = Instant::now() + patience;
        let Prepared { origin, request } =
            prepare(rendered, traceparent, false).map_err(|why| {
                tracing::warn!(%operation_id, tool, %why, "question cannot be built");
                Blank::Unbuildable
            })?;
        if let Some(mut kept) = self.pool.take(&origin) {
            match question(&mut kept, request.clone(), deadline).await {
                Exchange::Answered(answer) => {
                    self.pool.put(origin, kept);
                    return Ok(answer);
                }
                Exchange::NothingLeft { .. } | Exchange::Lost(Ambiguity::Broken) => {}
                Exchange::Lost(why) => return Err(blank(why)),
            }
        }
        let mut fresh = self.connect(about, &origin, deadline).await.ok_or(Blank::Unreachable)?;
        match question(&mut fresh, request, deadline).await {
            Exchange::Answered(answer) => {
                self.pool.put(origin, fresh);
                Ok(answer)
            }
            Exchange::NothingLeft { .. } => Err(Blank::Unreachable),
            Exchange::Lost(why) => Err(blank(why)),
        }
    }

    /// A new connection, or `None` and a line in the log: the result keeps only the kind of the
    /// failure. The line names no more than the host, never the URL.
    async fn connect(
        &self,
        about: About<'_>,
        origin: &Origin,
        deadline: Instant,
    ) -> Option<Connection> {
        let deadline = deadline.min(Instant::now() + CONNECT_TIMEOUT);
        match Connection::open(&self.connector, origin, deadline).await {
            Ok(connection) => Some(connection),
            Err(error) => {
                let About { operation_id, tool, .. } = about;
                tracing::warn!(%operation_id, tool, %error, "downstream not reachable");
                None
            }
        }
    }
}

async fn question(
    connection: &mut Connection,
    request: Request<Full<Bytes>>,
    deadline: Instant,
) -> Exchange {
    let patience = deadline.saturating_duration_since(Instant::now());
    connection.exchange(request, deadline, patience, &|_| true).await
}

/// A question that was lost, as far as it matters to whoever asked.
fn blank(why: Ambiguity) -> Blank {
    match why {
        Ambiguity::TimedOut | Ambiguity::Broken | Ambiguity::WorkerLost => Blank::Unreachable,
        Ambiguity::Panicked => Blank::Panicked,
        Ambiguity::NoReceipt => Blank::NoReceipt,
        Ambiguity::Unreadable
        | Ambiguity::Redirect
        | Ambiguity::UnlistedStatus
        | Ambiguity::NoJob
        | Ambiguity::Tool => Blank::Unclear,
    }
}

impl Journey<'_> {
    async fn exchange(
        self,
        request: Request<Full<Bytes>>,
        Taken { mut connection, kept }: Taken,
        sending: Sending,
    ) -> Attempted {
        let send_before = sending.send_before();
        let patience = self.http.timeout;
        let wanted: Wanted<'_> = &|status: StatusCode| Meaning::of(status, self.http).is_definite();
        let spare = kept.then(|| request.clone());
        let mut ended = connection.exchange(request, send_before, patience, wanted).await;
        // A kept connection that died unseen took nothing with it, so this is still the first send.
        if let (Exchange::NothingLeft { late: false }, Some(request)) = (&ended, spare) {
            let Some(fresh) = self.connect(send_before).await else {
                return sending.not_sent(NotSent::Unreachable);
            };
            connection = fresh;
            ended = connection.exchange(request, send_before, patience, wanted).await;
        }
        match ended {
            Exchange::Answered(answer) => {
                let attempted = answer.judge(self.call.operation_id, self.http, sending);
                self.give_back(connection);
                attempted
            }
            Exchange::NothingLeft { late: true } => sending.not_sent(NotSent::LeaseTooShort),
            Exchange::NothingLeft { late: false } => sending.not_sent(NotSent::Unreachable),
            Exchange::Lost(why) => sending.ambiguous(why),
        }
    }

    async fn take(&self) -> Option<Taken> {
        if self.connections == Connections::Kept
            && let Some(connection) = self.client.pool.take(&self.origin)
        {
            return Some(Taken { connection, kept: true });
        }
        let connection = self.connect(Instant::now() + self.http.timeout).await?;
        Some(Taken { connection, kept: false })
    }

    async fn connect(&self, deadline: Instant) -> Option<Connection> {
        self.client.connect(About::of(self.call), &self.origin, deadline).await
    }

    fn give_back(self, connection: Connection) {
        if self.connections == Connections::Kept {
            self.client.pool.put(self.origin, connection);
        }
    }
}
