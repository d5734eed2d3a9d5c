//! A way to the broker on which what either side sends can be held back from a certain frame on, let
//! go late, or lost. What its sender left behind when it died arrives all the same, as on a network.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

/// The beginning of a method frame's payload: class and method.
pub(super) type Method = [u8; 4];

/// `basic.publish`
pub(super) const PUBLISH: Method = [0, 60, 0, 40];

/// `basic.ack`: a worker's, or the broker's confirm.
pub(super) const ACK: Method = [0, 60, 0, 80];

/// What becomes of what one side sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    Open,
    /// Kept from the first frame of this method on.
    HeldFrom(Method),
    /// What is kept stays so; nothing more is.
    Standing,
    /// Lost.
    Lost,
}

/// How long the end of a stream waits for a sign that what came late was taken. Not all is answered.
const TAKEN_WITHIN: Duration = Duration::from_secs(5);

/// The proxy; it ends with the test's runtime.
pub(super) struct Sluice {
    address: SocketAddr,
    ways: Arc<Ways>,
}

struct Ways {
    forth: Way,
    back: Way,
    cuts: watch::Sender<u32>,
}

struct Way {
    gate: watch::Sender<Gate>,
    /// Frames of the method that are kept now.
    held: AtomicUsize,
}

impl Sluice {
    /// In front of `target` (`host:port`).
    pub(super) async fn before(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let ways =
            Arc::new(Ways { forth: Way::open(), back: Way::open(), cuts: watch::Sender::new(0) });
        let (target, shared) = (target.to_owned(), Arc::clone(&ways));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&target).await else { continue };
                tokio::spawn(Arc::clone(&shared).carry(client, server));
            }
        });
        Self { address, ways }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What clients send to the server.
    pub(super) fn forth(&self, gate: Gate) {
        self.ways.forth.gate.send_replace(gate);
    }

    /// What the server sends to clients.
    pub(super) fn back(&self, gate: Gate) {
        self.ways.back.gate.send_replace(gate);
    }

    /// Frames of the method that are kept on their way there, and back.
    pub(super) fn held(&self) -> (usize, usize) {
        let count = |way: &Way| way.held.load(Ordering::SeqCst);
        (count(&self.ways.forth), count(&self.ways.back))
    }

    /// Ends all connections of this moment; what is kept of them never arrives.
    pub(super) fn cut(&self) {
        self.ways.cuts.send_modify(|cuts| *cuts += 1);
    }
}

impl Ways {
    async fn carry(self: Arc<Self>, client: TcpStream, server: TcpStream) {
        let mut cut = self.cuts.subscribe();
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        // A client that has gone does not end the way there before everything has arrived; the
        // server then ends the way back.
        let (told, answers) = watch::channel(0);
        let (nobody, unasked) = watch::channel(0);
        let both = async {
            tokio::join!(
                self.forth.carry(from_client, to_server, nobody, answers),
                self.back.carry(from_server, to_client, told, unasked)
            )
        };
        tokio::select! {
            // First: what is kept when the cut is ordered never arrives, whatever is opened then.
            biased;
            _cut = cut.changed() => {}
            _both = both => {}
        }
    }
}

impl Way {
    fn open() -> Self {
        Self { gate: watch::Sender::new(Gate::Open), held: AtomicUsize::new(0) }
    }

    /// Carries until its sender has ended and nothing is kept; then tells the other side so.
    async fn carry(
        &self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        told: watch::Sender<usize>,
        mut answers: watch::Receiver<usize>,
    ) {
        let mut gate = self.gate.subscribe();
        let (mut kept, mut holds, mut ended) = (Vec::new(), false, false);
        let mut buffer = vec![0; 64 * 1024];
        while !ended || !kept.is_empty() {
            let mut chunk: &[u8] = &[];
            tokio::select! {
                read = from.read(&mut buffer), if !ended => match read {
                    Ok(count @ 1..) => chunk = &buffer[..count],
                    Ok(_) | Err(_) => ended = true,
                },
                changed = gate.changed() => if changed.is_err() { return },
            }
            told.send_modify(|chunks| *chunks += usize::from(!chunk.is_empty()));
            let stands = *gate.borrow_and_update();
            holds = match stands {
                Gate::HeldFrom(method) => holds || contains(chunk, method) > 0,
                Gate::Standing => holds,
                Gate::Open | Gate::Lost => false,
            };
            kept.extend_from_slice(chunk);
            if let Gate::HeldFrom(method) = stands {
                self.held.fetch_add(contains(chunk, method), Ordering::SeqCst);
            }
            if !holds && !kept.is_empty() {
                let (flows, before) = (std::mem::take(&mut kept), *answers.borrow());
                if stands != Gate::Lost {
                    // An error: nobody is there to take it. What still comes is read all the same.
                    to.write_all(&flows).await.ok();
                }
                self.held.store(0, Ordering::SeqCst);
                if ended {
                    // With the end of the stream behind it a server may drop what came before.
                    timeout(TAKEN_WITHIN, answers.wait_for(|chunks| *chunks > before)).await.ok();
                }
            }
        }
        to.shutdown().await.ok();
    }
}

/// How many frames of the method begin in this chunk.
fn contains(chunk: &[u8], method: Method) -> usize {
    chunk.windows(method.len()).filter(|window| *window == method).count()
}
