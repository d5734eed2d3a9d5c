//! The stream that the client library reads from: TCP or TLS, with the [`WireGuard`] above it.
//!
//! The library takes its stream type from a *reactor*, so ours is the usual one with another type.

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use async_rs::{Tokio, traits::Reactor};
use futures::{
    Stream,
    io::{AsyncRead, AsyncWrite},
};
use tokio::{
    io::{AsyncRead as _, AsyncWrite as _, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

use super::wire_guard::WireGuard;

/// Read from the socket in one go: a few full prefetch windows of small messages.
const CHUNK_BYTES: usize = 64 * 1024;

pub(super) struct GuardedStream {
    inner: Inner,
    guard: WireGuard,
    chunk: Box<[u8]>,
}

enum Inner {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl GuardedStream {
    pub(super) fn plain(stream: TcpStream) -> Self {
        Self::over(Inner::Plain(stream))
    }

    pub(super) fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self::over(Inner::Tls(Box::new(stream)))
    }

    fn over(inner: Inner) -> Self {
        Self { inner, guard: WireGuard::default(), chunk: vec![0; CHUNK_BYTES].into_boxed_slice() }
    }
}

impl AsyncRead for GuardedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let Self { inner, guard, chunk } = self.get_mut();
        loop {
            let given = guard.pull(room);
            if given > 0 || room.is_empty() {
                return Poll::Ready(Ok(given));
            }
            let mut read = ReadBuf::new(chunk);
            ready!(match inner {
                Inner::Plain(stream) => Pin::new(stream).poll_read(cx, &mut read),
                Inner::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, &mut read),
            })?;
            if read.filled().is_empty() {
                guard.finish();
                return Poll::Ready(Ok(guard.pull(room)));
            }
            guard.push(read.filled());
        }
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().inner {
            Inner::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Inner::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().inner {
            Inner::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Inner::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, parts),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().inner {
            Inner::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Inner::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().inner {
            Inner::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Inner::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }
}

/// Tokio's reactor with [`GuardedStream`] as its stream.
#[derive(Clone, Debug)]
pub(super) struct GuardedReactor(Tokio);

impl GuardedReactor {
    pub(super) fn new(tokio: Tokio) -> Self {
        Self(tokio)
    }
}

impl Reactor for GuardedReactor {
    type TcpStream = GuardedStream;
    type Sleep = <Tokio as Reactor>::Sleep;

    /// The library registers no foreign handles, and a stream of ours cannot be made of one.
    fn register<H: Read + Write + Send + 'static>(
        &self,
        _handle: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        Err::<GuardedStream, _>(io::Error::from(io::ErrorKind::Unsupported))
    }

    fn sleep(&self, dur: Duration) -> Self::Sleep {
        self.0.sleep(dur)
    }

    fn interval(&self, dur: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(dur)
    }

    /// Connections are opened in `socket.rs`, with their deadline and their TLS.
    fn tcp_connect_addr(
        &self,
        _addr: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        std::future::ready(Err(io::Error::from(io::ErrorKind::Unsupported)))
    }
}
