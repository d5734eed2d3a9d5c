//! A TCP proxy that counts the chunks that pass it and cuts a connection at the n-th; it can also
//! swallow everything that a server answers, and cut all connections at once.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How long the answer to a chunk is waited for that is to be swallowed: some chunks have none.
const ANSWER_WITHIN: Duration = Duration::from_millis(300);

/// Where the n-th chunk is lost, and its connection with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The n-th chunk from the client never reaches the server.
    Request,
    /// The server gets the n-th chunk from the client; its answer never arrives.
    Answer,
    /// The n-th chunk from the server never reaches the client, whatever it was about.
    FromServer,
    /// As `Request`, but the connection stands until the client ends it.
    FrozenRequest,
    /// As `Answer`, but the connection stands until the client ends it.
    FrozenAnswer,
}

/// The proxy; it ends with the test's runtime.
pub(crate) struct Cutter {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    to_server: AtomicUsize,
    to_client: AtomicUsize,
    swallow: AtomicBool,
    live: AtomicUsize,
    plan: Mutex<Option<Plan>>,
    cuts: watch::Sender<u32>,
    fired: watch::Sender<bool>,
}

struct Plan {
    loss: Loss,
    /// Chunks of that direction that still pass.
    left: usize,
}

/// What becomes of one chunk.
enum Fate {
    Pass,
    Lose,
    LoseAnswer,
    Freeze,
    FreezeAnswer,
}

impl Cutter {
    /// Listens on a free port, in front of `target` (`host:port`).
    pub(crate) async fn open(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cutter = Self { address: listener.local_addr().unwrap(), state: Arc::default() };
        let (target, state) = (target.to_owned(), Arc::clone(&cutter.state));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&target).await else { continue };
                tokio::spawn(Arc::clone(&state).carry(client, server));
            }
        });
        cutter
    }

    /// In front of the server that `url` names; answers the URL that leads through the proxy.
    pub(crate) async fn before(url: &str) -> (Self, String) {
        let (scheme, rest) = url.split_once("://").expect("a URL");
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let cutter = Self::open(host).await;
        let login = if login.is_empty() { String::new() } else { format!("{login}@") };
        let through = format!("{scheme}://{login}{}/{path}", cutter.address);
        (cutter, through)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections stand.
    pub(crate) fn live(&self) -> usize {
        self.state.live.load(Ordering::SeqCst)
    }

    /// How many chunks have come from the client and from the server.
    pub(crate) fn chunks(&self) -> (usize, usize) {
        (self.state.to_server.load(Ordering::SeqCst), self.state.to_client.load(Ordering::SeqCst))
    }

    /// Loses the `n`-th chunk from now on (1 is the next) and cuts its connection.
    pub(crate) fn lose(&self, n: usize, loss: Loss) {
        self.state.fired.send_replace(false);
        *self.state.plan.lock().unwrap() = Some(Plan { loss, left: n.checked_sub(1).unwrap() });
    }

    /// Lets everything pass again; answers whether the last plan had come to its chunk.
    pub(crate) fn disarm(&self) -> bool {
        self.state.plan.lock().unwrap().take().is_none()
    }

    /// Waits until the plan has come to its chunk; `false` after `within`.
    pub(crate) async fn has_fired(&self, within: Duration) -> bool {
        let mut fired = self.state.fired.subscribe();
        tokio::time::timeout(within, fired.wait_for(|fired| *fired)).await.is_ok()
    }

    /// Half-open: what the client sends arrives, what the server answers does not.
    pub(crate) fn swallow_answers(&self, on: bool) {
        self.state.swallow.store(on, Ordering::SeqCst);
    }

    /// Ends all connections of this moment.
    pub(crate) fn cut(&self) {
        self.state.cuts.send_modify(|count| *count += 1);
    }
}

impl State {
    async fn carry(self: Arc<Self>, client: TcpStream, server: TcpStream) {
        let mut cut = self.cuts.subscribe();
        self.live.fetch_add(1, Ordering::SeqCst);
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let unanswered = AtomicBool::new(false);
        let answer_lost = watch::Sender::new(false);
        let answered = answer_lost.subscribe();
        tokio::select! {
            () = self.forth(from_client, to_server, &unanswered, answered) => {}
            () = self.back(from_server, to_client, &unanswered, &answer_lost) => {}
            _cut = cut.changed() => {}
        }
        self.live.fetch_sub(1, Ordering::SeqCst);
    }

    async fn forth(
        &self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        unanswered: &AtomicBool,
        mut answered: watch::Receiver<bool>,
    ) {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            self.to_server.fetch_add(1, Ordering::SeqCst);
            let fate = self.fate(true);
            match fate {
                Fate::Lose => return,
                Fate::Freeze => return client_gone(&mut from).await,
                // Told before the chunk is sent: its answer may be here at once.
                Fate::LoseAnswer | Fate::FreezeAnswer => unanswered.store(true, Ordering::SeqCst),
                Fate::Pass => {}
            }
            if to.write_all(&buffer[..count]).await.is_err() {
                return;
            }
            if matches!(fate, Fate::LoseAnswer | Fate::FreezeAnswer) {
                tokio::time::timeout(ANSWER_WITHIN, answered.wait_for(|seen| *seen)).await.ok();
                self.fired.send_replace(true);
                if matches!(fate, Fate::FreezeAnswer) {
                    client_gone(&mut from).await;
                }
                return;
            }
        }
    }

    async fn back(
        &self,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        unanswered: &AtomicBool,
        answer_lost: &watch::Sender<bool>,
    ) {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            self.to_client.fetch_add(1, Ordering::SeqCst);
            if unanswered.load(Ordering::SeqCst) {
                answer_lost.send_replace(true);
                std::future::pending::<()>().await;
            }
            if matches!(self.fate(false), Fate::Lose) {
                return;
            }
            let swallowed = self.swallow.load(Ordering::SeqCst);
            if !swallowed && to.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    }

    /// Counts a chunk of one direction.
    fn fate(&self, to_server: bool) -> Fate {
        let mut standing = self.plan.lock().unwrap();
        let Some(plan) =
            standing.as_mut().filter(|plan| (plan.loss != Loss::FromServer) == to_server)
        else {
            return Fate::Pass;
        };
        if plan.left > 0 {
            plan.left -= 1;
            return Fate::Pass;
        }
        let fate = match plan.loss {
            Loss::Request | Loss::FromServer => Fate::Lose,
            Loss::Answer => Fate::LoseAnswer,
            Loss::FrozenRequest => Fate::Freeze,
            Loss::FrozenAnswer => Fate::FreezeAnswer,
        };
        *standing = None;
        if matches!(fate, Fate::Lose | Fate::Freeze) {
            self.fired.send_replace(true);
        }
        fate
    }
}

/// Reads on, for nobody, until the client closes.
async fn client_gone(from: &mut OwnedReadHalf) {
    let mut buffer = vec![0; 4096];
    while let Ok(1..) = from.read(&mut buffer).await {}
}
