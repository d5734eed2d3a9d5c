//! One connection to the broker, watched.
//!
//! The client library's automatic recovery stays off: it repairs what it remembers, not what is
//! true, and its history is one of waits that never end. Here a connection lives once. Its end is
//! noticed through the library's events, through failed requests, through heartbeats and through a
//! look at its state several times a second, and then it is never used again.

use std::{
    fmt,
    pin::pin,
    sync::{
        Arc, Once,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use lapin::{Channel, Connection, ConnectionProperties, Event};
use tokio::{
    sync::{Mutex, watch},
    time::{Instant, sleep_until, timeout},
};

use super::{
    AmqpUrl,
    error::{self, BrokerError},
    socket::{self, Socket},
    topology::Names,
};

/// How long after the fact a loss may go unnoticed when no event told of it.
const STATE_LOOK: Duration = Duration::from_millis(200);

/// How to reach the broker, and how long to wait for it.
#[derive(Clone, Debug)]
pub struct BrokerSettings {
    /// Where, and as whom.
    pub url: AmqpUrl,
    /// In front of every exchange and queue name, so that several deployments can share a broker.
    pub prefix: String,
    /// Deadline for connecting with login, and for the answer to every single request. Default in
    /// the configuration: 10 s.
    pub connect_timeout: Duration,
    /// Heartbeat interval; a silent peer is given up after twice this long.
    pub heartbeat: Duration,
    /// Deadline for all confirms of one published batch together.
    pub confirm_timeout: Duration,
    /// Shown in the management interface.
    pub name: String,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// In words, without secrets.
    pub reason: String,
}

/// A connection to the broker. Clones share it; the last one dropped closes it.
#[derive(Clone)]
pub struct Broker(Arc<Shared>);

struct Shared {
    connection: Connection,
    socket: Socket,
    settings: BrokerSettings,
    names: Names,
    /// Sender too, so that an unanswered request can declare the connection lost.
    loss: watch::Sender<Option<Loss>>,
    /// Kept open between looks at queue lengths; replaced when a look at a missing queue closes it.
    counting: Mutex<Option<Channel>>,
    /// Channels that were given up and whose end the broker has not confirmed.
    given_up: Arc<AtomicUsize>,
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("name", &self.0.settings.name)
            .field("usable", &self.is_usable())
            .finish_non_exhaustive()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Dropping the connection starts an orderly close; a peer that is gone never answers it.
        self.socket.clone().shut_down_after(self.settings.connect_timeout);
    }
}

impl Broker {
    /// Connects and logs in.
    ///
    /// # Errors
    /// [`BrokerError::Settings`] for a setting that can never work, [`BrokerError::Refused`] when
    /// the broker does not want us, [`BrokerError::Connect`] for everything that may pass.
    pub async fn connect(settings: &BrokerSettings) -> Result<Self, BrokerError> {
        install_crypto_provider();
        let names = Names::new(&settings.prefix)?;
        let uri = settings.url.parse(settings.heartbeat)?;
        let properties =
            ConnectionProperties::default().with_connection_name(settings.name.as_str().into());
        let socket = Socket::default();
        let dial = socket::dial(uri, properties, settings.connect_timeout, socket.clone());
        let connection = match timeout(settings.connect_timeout, dial).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => {
                socket.shut_down();
                return Err(connect_error(&error));
            }
            Err(_) => {
                socket.shut_down();
                let reason = format!("no answer within {:?}", settings.connect_timeout);
                return Err(BrokerError::Connect { reason });
            }
        };
        let loss = watch::Sender::new(None);
        watch_connection(&connection, loss.clone());
        Ok(Self(Arc::new(Shared {
            connection,
            socket,
            settings: settings.clone(),
            names,
            loss,
            counting: Mutex::new(None),
            given_up: Arc::default(),
        })))
    }

    /// Whether the connection stands, as far as we know.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.0.loss.borrow().is_none() && self.0.connection.status().connected()
    }

    /// Whether the broker has told this connection to stop publishing (memory or disk alarm).
    #[must_use]
    pub fn blocked(&self) -> bool {
        self.0.connection.status().blocked()
    }

    /// Waits until the connection is lost. Safe to drop and call again.
    pub async fn lost(&self) -> Loss {
        let mut seen = self.0.loss.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let found = seen.wait_for(Option::is_some).await.ok().and_then(|loss| loss.clone());
        found.unwrap_or_else(closed_here)
    }

    /// The settings this connection was made with.
    #[must_use]
    pub fn settings(&self) -> &BrokerSettings {
        &self.0.settings
    }

    /// The names of exchanges and queues on this broker.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.0.names
    }

    /// Closes in an orderly way, within the connect time-out. Errors do not matter any more.
    pub async fn close(&self) {
        let close = self.0.connection.close(200, "closed by the application".into());
        if !matches!(timeout(self.0.settings.connect_timeout, close).await, Ok(Ok(()))) {
            tracing::debug!("the broker did not confirm the end of the connection");
        }
        self.declare_lost(closed_here());
    }

    /// The largest frame both sides agreed on.
    pub(super) fn frame_max(&self) -> u32 {
        self.0.connection.configuration().frame_max()
    }

    /// Opens a channel. This asks nothing of any queue: no answer means that the peer is gone without
    /// a word (half-open socket, frozen broker), and the connection is given up, unless it is merely
    /// blocked, where nothing is written at all.
    pub(super) async fn channel(&self) -> Result<Channel, BrokerError> {
        let action = "open a channel";
        self.standing(action)?;
        let waited = self.0.settings.connect_timeout;
        let reason = match timeout(waited, self.0.connection.create_channel()).await {
            Ok(Ok(channel)) => return Ok(channel),
            Ok(Err(error)) => {
                let error = BrokerError::from_lapin(&error, action);
                let none_left = matches!(error, BrokerError::ChannelClosed { .. });
                if !none_left || self.0.given_up.load(Ordering::Relaxed) == 0 {
                    return Err(error);
                }
                "its channels are used up by requests without an answer".to_owned()
            }
            Err(_) if self.blocked() => return Err(BrokerError::Timeout { action, waited }),
            Err(_) => format!("no answer within {waited:?}"),
        };
        Err(self.lost_during(action, reason))
    }

    pub(super) async fn counting(&self) -> tokio::sync::MutexGuard<'_, Option<Channel>> {
        self.0.counting.lock().await
    }

    /// Awaits the answer to one request on a channel, with a deadline.
    ///
    /// The broker can leave a single queue without anybody to answer for it. So when half of the time
    /// is over, it is asked for another channel: if it gives one and no answer, this channel alone is
    /// given up ([`BrokerError::Timeout`]), else the connection. Frames and heartbeats that arrive
    /// prove less: RabbitMQ sends heartbeats also while it reads nothing of what we send.
    pub(super) async fn request<T>(
        &self,
        channel: &Channel,
        action: &'static str,
        answer: impl Future<Output = lapin::Result<T>>,
    ) -> Result<T, BrokerError> {
        self.standing(action)?;
        let waited = self.0.settings.connect_timeout;
        let asked = Instant::now();
        let mut answer = pin!(answer);
        let mut answered = timeout(waited / 2, &mut answer).await.ok();
        let mut alive = false;
        if answered.is_none() {
            let mut sign = pin!(self.0.connection.create_channel());
            let mut looking = true;
            let mut over = pin!(sleep_until(asked + waited));
            answered = loop {
                tokio::select! {
                    biased;
                    result = &mut answer => break Some(result),
                    seen = &mut sign, if looking => (alive, looking) = (seen.is_ok(), false),
                    () = &mut over => break None,
                }
            };
        }
        match answered {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(BrokerError::from_lapin(&error, action)),
            None if alive || self.blocked() => {
                self.give_up(channel);
                Err(BrokerError::Timeout { action, waited })
            }
            None => Err(self.lost_during(action, format!("no answer within {waited:?}"))),
        }
    }

    fn standing(&self, action: &'static str) -> Result<(), BrokerError> {
        match self.0.loss.borrow().as_ref() {
            None => Ok(()),
            Some(Loss { reason }) => {
                Err(BrokerError::ConnectionLost { action, reason: reason.clone() })
            }
        }
    }

    fn lost_during(&self, action: &'static str, reason: String) -> BrokerError {
        self.declare_lost(Loss { reason: reason.clone() });
        BrokerError::ConnectionLost { action, reason }
    }

    /// Asks for the channel's end and waits for it elsewhere: an answer that comes late must not
    /// leave a consumer behind that nobody listens to.
    fn give_up(&self, channel: &Channel) {
        let (channel, count) = (channel.clone(), self.0.given_up.clone());
        count.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            if let Err(error) = channel.close(200, "no answer in time".into()).await {
                tracing::debug!(%error, "a channel that was given up has not been closed");
            }
            count.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Ends the connection at once, for a peer that would not confirm an orderly end.
    pub(super) fn abandon(&self) {
        self.declare_lost(closed_here());
    }

    fn declare_lost(&self, loss: Loss) {
        set_once(&self.0.loss, loss);
        self.0.socket.shut_down();
    }
}

fn closed_here() -> Loss {
    Loss { reason: "closed by this process".to_owned() }
}

fn set_once(loss: &watch::Sender<Option<Loss>>, found: Loss) {
    loss.send_if_modified(|known| {
        let first = known.is_none();
        if first {
            *known = Some(found);
        }
        first
    });
}

/// Follows a connection to its end in a task that ends with it.
fn watch_connection(connection: &Connection, loss: watch::Sender<Option<Loss>>) {
    let status = connection.status().clone();
    let mut events = Box::pin(connection.events_listener());
    tokio::spawn(async move {
        let mut last_error = None;
        loop {
            match timeout(STATE_LOOK, events.next()).await {
                Ok(Some(Event::Error(error))) => last_error = Some(error),
                Ok(Some(Event::ConnectionBlocked(reason))) => {
                    tracing::warn!(reason = error::broker_text(&reason), "publishing blocked");
                }
                Ok(Some(Event::ConnectionUnblocked)) => tracing::info!("publishing unblocked"),
                Ok(Some(_)) | Err(_) => {}
                // The stream also ends when the library's side is dropped; the state tells.
                Ok(None) => tokio::time::sleep(STATE_LOOK).await,
            }
            // A closed channel comes as an error event too; only the state says which it was.
            if !status.connected() {
                break set_once(&loss, describe_loss(last_error.as_ref()));
            }
        }
    });
}

fn describe_loss(error: Option<&lapin::Error>) -> Loss {
    let reason = error.map_or_else(|| "connection closed".to_owned(), lapin::Error::to_string);
    Loss { reason: error::broker_text(&reason) }
}

fn connect_error(error: &lapin::Error) -> BrokerError {
    match BrokerError::from_lapin(error, "login") {
        BrokerError::ChannelClosed { code: error::ACCESS_REFUSED, reason, .. } => {
            BrokerError::Refused { action: "login", reason }
        }
        BrokerError::ChannelClosed { reason, .. } | BrokerError::ConnectionLost { reason, .. } => {
            BrokerError::Connect { reason }
        }
        other => other,
    }
}

/// One TLS implementation for the whole process; whoever comes first installs the same one.
pub(super) fn install_crypto_provider() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if rustls::crypto::ring::default_provider().install_default().is_err() {
            tracing::debug!("a TLS provider was installed already");
        }
    });
}
