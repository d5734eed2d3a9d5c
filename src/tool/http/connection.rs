//! One HTTP/1 connection, and one exchange on it.
//!
//! The connection is driven by the very future that waits for the answer, never by a task of its
//! own: when that future stops, nothing more leaves, so what the gauge shows then is final.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout, timeout_at};

use super::answer::{Answer, MAX_ANSWER_BYTES};
use super::connect::{Connector, Origin, Stream};
use super::wire::{Gauge, WriteRule};
use crate::domain::attempt::Ambiguity;

/// Whether an answer of that status is read to its end.
pub(super) type Wanted<'a> = &'a (dyn Fn(StatusCode) -> bool + Sync);

type Driver = http1::Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>;

/// How long the socket is looked at once more when time is up. A process that was stopped wakes with
/// its timers run out and its sockets not looked at yet, and what lies there may be the only proof.
const LAST_LOOK: Duration = Duration::from_millis(50);

/// How an exchange ended.
#[derive(Debug)]
pub(super) enum Exchange {
    /// As far as its meaning needs it, the answer was read whole.
    Answered(Answer),
    /// No byte of the request left, and none will.
    NothingLeft {
        /// Because the time to begin had passed.
        late: bool,
    },
    /// Bytes left, and no readable answer came.
    Lost(Ambiguity),
}

/// Why there is no answer.
enum Failure {
    /// Its head did not come, or could not be read.
    Head(hyper::Error),
    /// Its body broke off, or is too large.
    Body,
}

/// A connection that carries one request at a time.
pub(super) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// Empty once the connection has ended.
    driver: Option<Driver>,
    gauge: Arc<Gauge>,
}

impl Connection {
    pub(super) async fn open(
        connector: &Connector,
        origin: &Origin,
        deadline: Instant,
    ) -> io::Result<Self> {
        let (stream, gauge) = connector.connect(origin, deadline).await?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (sender, driver) = handshake.map_err(io::Error::other)?;
        let mut connection = Self { sender, driver: Some(driver), gauge };
        drive(&mut connection.driver, connection.sender.ready()).await.map_err(io::Error::other)?;
        Ok(connection)
    }

    /// Whether a request can be written at once. Looks at the socket, so that a connection which
    /// the downstream closed meanwhile, or on which it said something unasked, is found out.
    pub(super) fn is_usable(&mut self) -> bool {
        let ready = drive(&mut self.driver, self.sender.ready()).now_or_never();
        matches!(ready, Some(Ok(()))) && self.driver.is_some()
    }

    /// Sends `request` and waits for its answer, once. `patience` runs from the first byte to the
    /// last byte of the answer; `wanted` tells by the status whether the body is read.
    pub(super) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        send_before: Instant,
        patience: Duration,
        wanted: Wanted<'_>,
    ) -> Exchange {
        self.gauge.arm(WriteRule { send_before, timeout: patience });
        let response = self.sender.send_request(request);
        let mut answer = pin!(drive(&mut self.driver, read_answer(response, wanted)));
        let mut deadline = send_before.min(Instant::now() + patience);
        loop {
            // An answer that is there counts, even when the deadline has passed too.
            if let Ok(read) = timeout_at(deadline, answer.as_mut()).await {
                return self.gauge.conclude(read);
            }
            match self.gauge.first_byte() {
                None => return Exchange::NothingLeft { late: Instant::now() >= send_before },
                Some(first) if deadline < first + patience => deadline = first + patience,
                Some(_) => {
                    return match timeout(LAST_LOOK, answer.as_mut()).await {
                        Ok(read) => self.gauge.conclude(read),
                        Err(_) => Exchange::Lost(Ambiguity::TimedOut),
                    };
                }
            }
        }
    }
}

impl Gauge {
    /// What an ended exchange proves. Without a byte sent, even an "answer" answers nothing.
    fn conclude(&self, read: Result<Answer, Failure>) -> Exchange {
        match read {
            _ if self.first_byte().is_none() => Exchange::NothingLeft { late: self.was_late() },
            Ok(answer) => Exchange::Answered(answer),
            Err(_) if self.was_late() => Exchange::Lost(Ambiguity::TimedOut),
            Err(Failure::Head(error)) if error.is_parse() => Exchange::Lost(Ambiguity::Unreadable),
            Err(Failure::Head(_)) => Exchange::Lost(Ambiguity::Broken),
            Err(Failure::Body) => Exchange::Lost(Ambiguity::Unreadable),
        }
    }
}

/// Reads the head, and the body where the status alone does not settle the meaning.
async fn read_answer(
    response: impl Future<Output = hyper::Result<Response<Incoming>>>,
    wanted: Wanted<'_>,
) -> Result<Answer, Failure> {
    let (head, body) = response.await.map_err(Failure::Head)?.into_parts();
    let body = if wanted(head.status) {
        let whole = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
        whole.map_err(|_| Failure::Body)?.to_bytes()
    } else {
        Bytes::new()
    };
    Ok(Answer { status: head.status, headers: head.headers, body })
}

/// Polls `future`, and before it the connection that it depends on.
async fn drive<F: Future>(driver: &mut Option<Driver>, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        if driver.as_mut().is_some_and(|running| Pin::new(running).poll(cx).is_ready()) {
            *driver = None;
        }
        future.as_mut().poll(cx)
    })
    .await
}
