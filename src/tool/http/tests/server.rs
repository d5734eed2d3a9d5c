//! A downstream made of raw bytes: each connection plays a script, and what it received is kept.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longest wait for anything in these tests; far above what any of them takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// One thing that a connection's script does.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Reads one whole request.
    Request,
    /// Writes bytes as they are.
    Say(Vec<u8>),
    /// Closes the connection.
    Close,
    /// Closes it with a reset.
    Reset,
    /// Waits for [`Server::go_on`].
    Wait,
}

pub(super) fn say(text: impl Into<Vec<u8>>) -> Step {
    Step::Say(text.into())
}

/// A whole answer.
pub(super) fn answer(status: &str, headers: &str, body: &str) -> Step {
    let length = body.len();
    say(format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}"))
}

/// What the server has seen; index: connection, in the order in which they were accepted.
#[derive(Debug, Default)]
struct Log {
    received: Vec<Vec<u8>>,
    ended: usize,
}

pub(super) struct Server {
    pub(super) addr: SocketAddr,
    log: Arc<Mutex<Log>>,
    changed: watch::Sender<()>,
    go: watch::Sender<usize>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    /// Plays `scripts[n]` on the n-th connection; one more is closed at once. After its script a
    /// connection reads, and keeps, whatever comes until the client closes it.
    pub(super) async fn start(scripts: Vec<Vec<Step>>) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Arc::new(Self {
            addr: listener.local_addr().unwrap(),
            log: Arc::default(),
            changed: watch::channel(()).0,
            go: watch::channel(0).0,
            accepting: Mutex::default(),
        });
        let accepting = Arc::clone(&server);
        let task = tokio::spawn(async move {
            let mut scripts = scripts.into_iter();
            while let Ok((tcp, _)) = listener.accept().await {
                let index = accepting.note(|log| {
                    log.received.push(Vec::new());
                    log.received.len() - 1
                });
                let script = scripts.next().unwrap_or_else(|| vec![Step::Close]);
                let playing = Arc::clone(&accepting);
                tokio::spawn(async move {
                    playing.play(index, tcp, script).await;
                    playing.note(|log| log.ended += 1);
                });
            }
        });
        *server.accepting.lock().unwrap() = Some(task);
        server
    }

    /// From now on connections are refused.
    pub(super) async fn stop_listening(&self) {
        let task = self.accepting.lock().unwrap().take().unwrap();
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }

    /// Lets every script pass one more [`Step::Wait`].
    pub(super) fn go_on(&self) {
        self.go.send_modify(|passed| *passed += 1);
    }

    /// What each connection received so far.
    pub(super) fn received(&self) -> Vec<String> {
        let log = self.log.lock().unwrap();
        log.received.iter().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
    }

    /// How many bytes the connections received so far.
    pub(super) fn bytes(&self) -> Vec<usize> {
        self.log.lock().unwrap().received.iter().map(Vec::len).collect()
    }

    /// Waits until `count` connections were accepted.
    pub(super) async fn accepted(&self, count: usize) {
        self.reaches(|log| log.received.len() >= count).await;
    }

    /// Waits until `count` connections have ended: from then on their logs are complete.
    pub(super) async fn ended(&self, count: usize) {
        self.reaches(|log| log.ended >= count).await;
        // The end reached the peer's socket with the system call that made it; a turn of the
        // runtime's timer makes the runtime look at that socket.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    async fn reaches(&self, condition: impl Fn(&Log) -> bool) {
        let mut changed = self.changed.subscribe();
        let waiting = async {
            while !condition(&self.log.lock().unwrap()) {
                changed.changed().await.unwrap();
            }
        };
        timeout(PATIENCE, waiting).await.expect("the connections get there");
    }

    fn note<T>(&self, change: impl FnOnce(&mut Log) -> T) -> T {
        let noted = change(&mut self.log.lock().unwrap());
        self.changed.send_replace(());
        noted
    }

    async fn play(&self, index: usize, mut tcp: TcpStream, script: Vec<Step>) {
        let mut waits = 0;
        for step in script {
            match step {
                Step::Request => {
                    let before = self.bytes()[index];
                    while !self.holds_a_request(index, before) && self.read(index, &mut tcp).await {
                    }
                }
                Step::Say(bytes) => drop(tcp.write_all(&bytes).await),
                Step::Close => return,
                Step::Reset => {
                    tcp.set_zero_linger().unwrap();
                    return;
                }
                Step::Wait => {
                    waits += 1;
                    self.go.subscribe().wait_for(|passed| *passed >= waits).await.unwrap();
                }
            }
        }
        while self.read(index, &mut tcp).await {}
    }

    async fn read(&self, index: usize, tcp: &mut TcpStream) -> bool {
        let mut chunk = vec![0; 65536];
        let length = tcp.read(&mut chunk).await.unwrap_or(0);
        self.note(|log| log.received[index].extend_from_slice(&chunk[..length]));
        length > 0
    }

    fn holds_a_request(&self, index: usize, from: usize) -> bool {
        let text = self.received()[index][from..].to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        body.len() >= length.map_or(0, |length| length.parse().unwrap())
    }
}
