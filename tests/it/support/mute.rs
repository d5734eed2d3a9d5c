//! A proxy in front of RabbitMQ that knows frames: it makes single queues give no answer, as a broker
//! does that has lost a queue's process, while everything else goes on.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The proxy; it ends with the test's runtime.
pub(crate) struct Mute {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    plan: Mutex<Plan>,
    consumes: Mutex<Vec<Consume>>,
    connections: AtomicUsize,
    cuts: watch::Sender<u32>,
}

#[derive(Default)]
struct Plan {
    /// Methods and the queues that do not answer them.
    silent: HashSet<((u16, u16), String)>,
    only_heartbeats: bool,
}

/// A `basic.consume` that came by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Consume {
    /// The how-manieth connection it came over.
    pub(crate) connection: usize,
    pub(crate) queue: String,
}

pub(crate) const DECLARE: (u16, u16) = (50, 10);
pub(crate) const BIND: (u16, u16) = (50, 20);
pub(crate) const CONSUME: (u16, u16) = (60, 20);
/// Names an exchange where the others name a queue.
pub(crate) const PUBLISH: (u16, u16) = (60, 40);

const METHOD: u8 = 1;
const HEARTBEAT: u8 = 8;
/// Type, channel, length.
const HEAD: usize = 7;

impl Mute {
    /// Listens on a free port, in front of `target` (`host:port`).
    pub(crate) async fn open(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mute = Self { address: listener.local_addr().unwrap(), state: Arc::default() };
        let (target, state) = (target.to_owned(), Arc::clone(&mute.state));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&target).await else { continue };
                let number = state.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(Arc::clone(&state).carry(number, client, server));
            }
        });
        mute
    }

    /// From now on a channel that asks this of the queue gets nothing any more.
    pub(crate) fn silence(&self, methods: &[(u16, u16)], queue: &str) {
        let silent = methods.iter().map(|method| (*method, queue.to_owned()));
        self.state.plan.lock().unwrap().silent.extend(silent);
    }

    /// From now on queues answer on new channels.
    pub(crate) fn heal(&self) {
        *self.state.plan.lock().unwrap() = Plan::default();
    }

    /// The broker's heartbeats arrive, and nothing else.
    pub(crate) fn only_heartbeats(&self) {
        self.state.plan.lock().unwrap().only_heartbeats = true;
    }

    /// Every `basic.consume` so far.
    pub(crate) fn consumes(&self) -> Vec<Consume> {
        self.state.consumes.lock().unwrap().clone()
    }

    /// How many connections there have been.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst)
    }

    /// Ends all connections of this moment.
    pub(crate) fn cut(&self) {
        self.state.cuts.send_modify(|count| *count += 1);
    }
}

impl State {
    async fn carry(self: Arc<Self>, number: usize, client: TcpStream, server: TcpStream) {
        let mut cut = self.cuts.subscribe();
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let dead = Mutex::default();
        tokio::select! {
            _end = self.forth(number, from_client, to_server, &dead) => {}
            _end = self.back(from_server, to_client, &dead) => {}
            _cut = cut.changed() => {}
        }
    }

    async fn forth(
        &self,
        number: usize,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        dead: &Mutex<HashSet<u16>>,
    ) -> std::io::Result<()> {
        // "AMQP" and the protocol's version come before the first frame.
        let mut greeting = [0; 8];
        from.read_exact(&mut greeting).await?;
        to.write_all(&greeting).await?;
        loop {
            let frame = read_frame(&mut from).await?;
            let channel = channel(&frame);
            if let Some((method, queue)) = asked_of_queue(&frame) {
                if method == CONSUME {
                    let consume = Consume { connection: number, queue: queue.clone() };
                    self.consumes.lock().unwrap().push(consume);
                }
                if self.plan.lock().unwrap().silent.contains(&(method, queue)) {
                    dead.lock().unwrap().insert(channel);
                }
            }
            if !dead.lock().unwrap().contains(&channel) {
                to.write_all(&frame).await?;
            }
        }
    }

    async fn back(
        &self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        dead: &Mutex<HashSet<u16>>,
    ) -> std::io::Result<()> {
        loop {
            let frame = read_frame(&mut from).await?;
            let lost = dead.lock().unwrap().contains(&channel(&frame))
                || (frame[0] != HEARTBEAT && self.plan.lock().unwrap().only_heartbeats);
            if !lost {
                to.write_all(&frame).await?;
            }
        }
    }
}

async fn read_frame(from: &mut OwnedReadHalf) -> std::io::Result<Vec<u8>> {
    let mut frame = vec![0; HEAD];
    from.read_exact(&mut frame).await?;
    let size = u32::from_be_bytes(frame[3..HEAD].try_into().unwrap());
    frame.resize(HEAD + usize::try_from(size).unwrap() + 1, 0);
    from.read_exact(&mut frame[HEAD..]).await?;
    Ok(frame)
}

fn channel(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[1], frame[2]])
}

/// The method and the queue (or exchange) it names, where one of ours does.
fn asked_of_queue(frame: &[u8]) -> Option<((u16, u16), String)> {
    let number = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    if frame[0] != METHOD {
        return None;
    }
    let method = (number(HEAD), number(HEAD + 2));
    if ![DECLARE, BIND, CONSUME, PUBLISH].contains(&method) {
        return None;
    }
    // Two reserved bytes, then the name as a short string.
    let length = usize::from(frame[HEAD + 6]);
    let name = &frame[HEAD + 7..HEAD + 7 + length];
    Some((method, String::from_utf8(name.to_vec()).unwrap()))
}
