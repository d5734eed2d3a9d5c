//! A TCP proxy that can be cut, or made to swallow everything that comes back.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that panics fails, as it should"
)]

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// The proxy; it ends with the test's runtime.
pub(crate) struct Valve {
    address: SocketAddr,
    swallow: Arc<AtomicBool>,
    live: Arc<AtomicUsize>,
    cuts: watch::Sender<u32>,
}

impl Valve {
    pub(crate) async fn open(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let valve = Self {
            address: listener.local_addr().unwrap(),
            swallow: Arc::default(),
            live: Arc::default(),
            cuts: watch::Sender::new(0),
        };
        let (target, cuts) = (target.to_owned(), valve.cuts.clone());
        let (swallow, live) = (valve.swallow.clone(), valve.live.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&target).await else { continue };
                let mut cut = cuts.subscribe();
                let (swallow, live) = (swallow.clone(), live.clone());
                live.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    tokio::select! {
                        () = relay(client, server, swallow) => {}
                        _cut = cut.changed() => {}
                    }
                    live.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        valve
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections stand.
    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::SeqCst)
    }

    /// Half-open: what the client sends arrives, what the server answers does not.
    pub(crate) fn swallow_answers(&self, on: bool) {
        self.swallow.store(on, Ordering::SeqCst);
    }

    /// Ends all connections of this moment.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|count| *count += 1);
    }
}

async fn relay(client: TcpStream, server: TcpStream, swallow: Arc<AtomicBool>) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let forth = async {
        tokio::io::copy(&mut from_client, &mut to_server).await.ok();
    };
    let back = async {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
            let swallowed = swallow.load(Ordering::SeqCst);
            if !swallowed && to_client.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
    };
    tokio::select! { () = forth => {}, () = back => {} }
}
