//! The socket of one connection, and the means to misbehave on it.
//!
//! hyper only writes well-formed answers. To close without an answer, to write what is not HTTP
//! or to stop in the middle of a body, a handler puts a script on the wire: those bytes go out
//! *instead of* what hyper writes next, then the connection is closed.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// What a connection writes instead of hyper's next answer; shared with its handlers.
#[derive(Clone, Default)]
pub(crate) struct Script(Arc<Mutex<Option<Bytes>>>);

impl Script {
    /// Writes `bytes` in place of the answer, then closes. No bytes: closes without a word.
    pub(crate) fn instead(&self, bytes: impl Into<Bytes>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes.into());
    }
}

/// A TCP stream that follows its script.
pub(crate) struct Wire {
    stream: TcpStream,
    script: Script,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> (Self, Script) {
        let script = Script::default();
        (Self { stream, script: script.clone() }, script)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wire = self.get_mut();
        let mut script = wire.script.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(rest) = script.as_mut() else {
            return Pin::new(&mut wire.stream).poll_write(cx, buf);
        };
        while rest.has_remaining() {
            let written = ready!(Pin::new(&mut wire.stream).poll_write(cx, rest))?;
            rest.advance(written);
        }
        // hyper takes the error as the end of the connection and drops it, which closes the socket.
        Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}
