//! A socket that knows whether any byte of the request has left, and lets none leave too late.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// When a request's bytes may leave.
#[derive(Debug, Clone, Copy)]
pub(super) struct WriteRule {
    /// The first byte leaves before this instant or never.
    pub(super) send_before: Instant,
    /// The other bytes leave within this time from the first. A byte that leaves later could
    /// complete a request whose sender has given up and whose lease is another's.
    pub(super) timeout: Duration,
}

/// What the socket saw of the current request. Shared by the socket, which sits below TLS and
/// below the HTTP connection, and whoever has to say what happened.
#[derive(Debug, Default)]
pub(super) struct Gauge(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    rule: Option<WriteRule>,
    first_byte: Option<Instant>,
    late: bool,
}

impl Gauge {
    /// Begins a request: forgets the one before it on this connection.
    pub(super) fn arm(&self, rule: WriteRule) {
        *self.seen() = Seen { rule: Some(rule), first_byte: None, late: false };
    }

    /// When the current request's first byte was handed to the kernel; `None` while none was.
    pub(super) fn first_byte(&self) -> Option<Instant> {
        self.seen().first_byte
    }

    /// Whether a write was stopped because its time had passed.
    pub(super) fn was_late(&self) -> bool {
        self.seen().late
    }

    /// Asks whether bytes may leave at `now`. Without a rule they may: a TLS handshake comes
    /// before any request.
    fn admit(&self, now: Instant) -> io::Result<()> {
        let mut seen = self.seen();
        let open = match (seen.rule, seen.first_byte) {
            (None, _) => true,
            (Some(rule), None) => now < rule.send_before,
            (Some(rule), Some(first)) => now < first + rule.timeout,
        };
        seen.late |= !open;
        if open { Ok(()) } else { Err(io::Error::from(io::ErrorKind::TimedOut)) }
    }

    /// Notes the outcome of a write that was admitted at `now`.
    fn note(&self, now: Instant, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(1..)) = written {
            let mut seen = self.seen();
            if seen.rule.is_some() {
                seen.first_byte.get_or_insert(now);
            }
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A TCP connection under a [`Gauge`].
#[derive(Debug)]
pub(super) struct Wire {
    tcp: TcpStream,
    gauge: Arc<Gauge>,
}

impl Wire {
    pub(super) fn new(tcp: TcpStream, gauge: Arc<Gauge>) -> Self {
        Self { tcp, gauge }
    }

    /// Writes if the gauge admits it. The clock is read here, with nothing but the system call
    /// after it.
    fn guarded(
        &mut self,
        write: impl FnOnce(Pin<&mut TcpStream>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let now = Instant::now();
        self.gauge.admit(now)?;
        let written = write(Pin::new(&mut self.tcp));
        self.gauge.note(now, &written);
        written
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buf)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.guarded(|tcp| tcp.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.guarded(|tcp| tcp.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The bound is exclusive: at the very instant the lease may already be another's.
    #[test]
    fn the_first_byte_leaves_before_the_bound_or_never() {
        let start = Instant::now();
        let check = |now: Instant, admitted: bool| {
            let gauge = Gauge::default();
            gauge.arm(WriteRule { send_before: start + SECOND, timeout: SECOND });
            assert_eq!((gauge.admit(now).is_ok(), gauge.was_late()), (admitted, !admitted));
            assert_eq!(gauge.first_byte(), None);
        };
        check(start, true);
        check(start + SECOND - Duration::from_nanos(1), true);
        check(start + SECOND, false);
        check(start + 2 * SECOND, false);
    }

    #[test]
    fn the_last_byte_leaves_within_the_time_out_counted_from_the_first() {
        let start = Instant::now();
        let gauge = Gauge::default();
        gauge.arm(WriteRule { send_before: start + SECOND, timeout: 3 * SECOND });
        gauge.note(start, &Poll::Pending);
        gauge.note(start, &Poll::Ready(Ok(0)));
        gauge.note(start, &Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())));
        assert_eq!(gauge.first_byte(), None, "nothing was written");
        gauge.note(start, &Poll::Ready(Ok(1)));
        gauge.note(start + SECOND, &Poll::Ready(Ok(5)));
        assert_eq!(gauge.first_byte(), Some(start));
        assert!(gauge.admit(start + 2 * SECOND).is_ok(), "past send_before, but begun in time");
        assert!(gauge.admit(start + 3 * SECOND).is_err());
    }

    #[test]
    fn bytes_before_the_first_request_are_not_the_requests() {
        let gauge = Gauge::default();
        assert!(gauge.admit(Instant::now()).is_ok());
        gauge.note(Instant::now(), &Poll::Ready(Ok(200)));
        gauge.arm(WriteRule { send_before: Instant::now() + SECOND, timeout: SECOND });
        assert_eq!(gauge.first_byte(), None);
    }
}
