//! One tool's channel: opened, pumped, repaired.
//!
//! A lane lives as long as the consumer and the shared connection. It never closes a channel whose
//! deliveries are unfinished: those keep the channel open until they are acknowledged.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use lapin::{
    options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions},
    types::FieldTable,
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout},
};

use super::{
    Broker, BrokerError, BrokerSettings, Care, ConsumerEvent, Delivery, consumer::Reporter,
    delivery::Line, topology::short,
};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// A tool whose queue is in the wrong shape is looked at this often.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A subscription that stood this long was a success: the next failure starts from the first pause.
const STOOD: Duration = Duration::from_secs(5);
/// A careful lane returns to the shared connection when nothing unreadable came for this long.
const QUIET: Duration = Duration::from_secs(10);

pub(super) struct Lane {
    pub(super) tool: String,
    pub(super) prefetch: u16,
    pub(super) shared: Broker,
    pub(super) sender: mpsc::Sender<Delivery>,
    pub(super) reporter: Reporter,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) cancelled: watch::Sender<usize>,
}

/// An open consumer.
struct Subscription {
    line: Arc<Line>,
    stream: lapin::Consumer,
}

/// Why a subscription ended.
enum End {
    Stopped,
    Quiet,
    Cancelled,
    ChannelClosed(String),
    /// The lane's connection, which is the shared one unless the lane is careful.
    ConnectionLost,
    /// Nobody receives any more.
    Abandoned,
}

impl Lane {
    pub(super) async fn run(mut self, mut care: Care) {
        let mut pause = FIRST_PAUSE;
        let mut first = true;
        while !*self.stop.borrow() && self.shared.is_usable() {
            let opened = self.open(care).await;
            let since = Instant::now();
            match opened {
                Ok(mut subscription) => {
                    if !first {
                        self.report(|tool| ConsumerEvent::Resumed { tool });
                    }
                    first = false;
                    let end = self.pump(&mut subscription, care).await;
                    if since.elapsed() >= STOOD {
                        pause = FIRST_PAUSE;
                    }
                    match self.after(end, subscription, care).await {
                        Next::Open(with) => care = with,
                        Next::PauseAndOpen => {}
                        Next::End => break,
                    }
                    if matches!(care, Care::Careful) {
                        // The delivery limit counts rounds, so rounds should be short.
                        pause = FIRST_PAUSE;
                    }
                }
                Err(error) => {
                    first = false;
                    let reason = error.to_string();
                    self.report(|tool| ConsumerEvent::Unserved { tool, reason });
                }
            }
            if self.wait(pause).await {
                break;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        self.cancelled.send_modify(|count| *count += 1);
    }

    /// Waits, and says whether the lane has to end instead.
    async fn wait(&mut self, pause: Duration) -> bool {
        tokio::select! {
            _stopped = self.stop.wait_for(|stop| *stop) => true,
            _loss = self.shared.lost() => true,
            () = sleep(pause) => false,
        }
    }

    async fn open(&self, care: Care) -> Result<Subscription, BrokerError> {
        let (broker, prefetch) = match care {
            Care::Normal => (self.shared.clone(), self.prefetch),
            Care::Careful => (self.own_connection().await?, 1),
        };
        broker.declare_tool(&self.tool).await?;
        let queue = broker.names().tool(&self.tool);
        let channel = broker.channel().await?;
        let qos = channel.basic_qos(prefetch, BasicQosOptions::default());
        broker.request("set the prefetch", qos).await?;
        let consume = channel.basic_consume(
            short(&queue)?,
            short("")?,
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let consumed = broker.request("consume", consume).await;
        let stream = consumed.map_err(|error| error.about(&queue))?;
        Ok(Subscription { line: Arc::new(Line { channel, broker }), stream })
    }

    async fn own_connection(&self) -> Result<Broker, BrokerError> {
        let settings = self.shared.settings();
        let name = format!("{} ({}, careful)", settings.name, self.tool);
        Broker::connect(&BrokerSettings { name, ..settings.clone() }).await
    }

    /// Forwards deliveries until something ends it.
    async fn pump(&mut self, subscription: &mut Subscription, care: Care) -> End {
        let quiet = sleep(match care {
            Care::Normal => Duration::MAX,
            Care::Careful => QUIET,
        });
        tokio::pin!(quiet);
        loop {
            let item = tokio::select! {
                biased;
                _stopped = self.stop.wait_for(|stop| *stop) => return End::Stopped,
                () = &mut quiet => return End::Quiet,
                item = subscription.stream.next() => item,
            };
            let delivery = match item {
                Some(Ok(delivery)) => {
                    Delivery::new(&self.tool, delivery, subscription.line.clone())
                }
                Some(Err(error)) => return subscription.ended_with(&error),
                None if subscription.line.broker.is_usable() => return End::Cancelled,
                None => return End::ConnectionLost,
            };
            // Bounded by the prefetch of all lanes, so this waits only when a lane was repaired
            // while its former deliveries are still being looked at.
            let sent = tokio::select! {
                biased;
                _stopped = self.stop.wait_for(|stop| *stop) => Err(Some(delivery.handle)),
                permit = self.sender.reserve() => match permit {
                    Ok(permit) => Ok(permit.send(delivery)),
                    Err(_) => Err(None),
                },
            };
            match sent {
                Ok(()) => {}
                Err(None) => return End::Abandoned,
                // Stopped with a delivery in hand: it goes back like everything not started.
                Err(Some(handle)) => {
                    if let Err(error) = handle.release().await {
                        tracing::debug!(%error, "a delivery was not released");
                    }
                    return End::Stopped;
                }
            }
        }
    }

    async fn after(&self, end: End, subscription: Subscription, care: Care) -> Next {
        match end {
            End::Stopped => {
                self.hand_over(subscription, Cancelled::Counted).await;
                Next::End
            }
            End::Quiet => {
                self.hand_over(subscription, Cancelled::Silent).await;
                Next::Open(Care::Normal)
            }
            End::Cancelled => {
                self.report(|tool| ConsumerEvent::Cancelled { tool });
                Next::PauseAndOpen
            }
            End::ChannelClosed(reason) => {
                self.report(|tool| ConsumerEvent::ChannelClosed { tool, reason });
                Next::PauseAndOpen
            }
            End::ConnectionLost => match care {
                Care::Normal => Next::End,
                Care::Careful => {
                    let loss = subscription.line.broker.lost().await;
                    if loss.unreadable {
                        self.report(|tool| ConsumerEvent::UnreadableMessage { tool });
                    } else {
                        let reason = loss.reason;
                        self.report(|tool| ConsumerEvent::ChannelClosed { tool, reason });
                    }
                    Next::PauseAndOpen
                }
            },
            End::Abandoned => Next::End,
        }
    }

    /// Cancels the consumer and passes on what had been sent before the broker heard of it.
    async fn hand_over(&self, mut subscription: Subscription, cancelled: Cancelled) {
        let line = subscription.line.clone();
        let tag = subscription.stream.tag();
        let cancel = line.channel.basic_cancel(tag, BasicCancelOptions::default());
        if let Err(error) = line.broker.request("cancel a consumer", cancel).await {
            tracing::debug!(tool = self.tool, %error, "the consumer was not cancelled");
        }
        if matches!(cancelled, Cancelled::Counted) {
            self.cancelled.send_modify(|count| *count += 1);
        }
        // The library ends the stream when the cancellation is confirmed or the channel is gone;
        // the deadline is for a library that forgets to.
        let patience = line.broker.settings().connect_timeout;
        while let Ok(Some(Ok(delivery))) = timeout(patience, subscription.stream.next()).await {
            let delivery = Delivery::new(&self.tool, delivery, line.clone());
            if self.sender.send(delivery).await.is_err() {
                break;
            }
        }
    }

    fn report(&self, event: impl FnOnce(String) -> ConsumerEvent) {
        self.reporter.report(event(self.tool.clone()));
    }
}

enum Next {
    Open(Care),
    PauseAndOpen,
    End,
}

enum Cancelled {
    Counted,
    Silent,
}

impl Subscription {
    fn ended_with(&self, error: &lapin::Error) -> End {
        match BrokerError::from_lapin(error, "consume") {
            BrokerError::ConnectionLost { .. } => End::ConnectionLost,
            BrokerError::ChannelClosed { code, reason, .. } => {
                End::ChannelClosed(format!("{code} {reason}"))
            }
            other => End::ChannelClosed(other.to_string()),
        }
    }
}
