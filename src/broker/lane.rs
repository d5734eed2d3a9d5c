//! One tool's channel: opened, pumped, repaired.
//!
//! A lane lives as long as the consumer and its connection. It never closes a channel whose
//! deliveries are unfinished: those keep the channel open until they are acknowledged. A repaired
//! lane always has a new channel, because a late acknowledgement of an old delivery would be a
//! protocol error there.
//!
//! A queue that gave no answer is asked on a connection of its own, until it has answered there.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use lapin::{
    options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions},
    types::FieldTable,
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout},
};

use super::{
    Broker, BrokerError, ConsumerEvent, Delivery, IF_UNSERVED, SilentQueues, consumer::Reporter,
    delivery::Line, topology::short,
};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// A tool whose queue is in the wrong shape is looked at this often.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A subscription that stood this long was a success: the next failure starts from the first pause.
const STOOD: Duration = Duration::from_secs(5);

pub(super) struct Lane {
    pub(super) tool: String,
    pub(super) prefetch: u16,
    pub(super) broker: Broker,
    pub(super) sender: mpsc::Sender<Delivery>,
    pub(super) reporter: Reporter,
    pub(super) silent: SilentQueues,
    pub(super) stop: watch::Receiver<bool>,
    /// Counts this lane once, as soon as the broker knows no consumer of it.
    pub(super) cancelled: Option<watch::Sender<usize>>,
}

/// An open consumer.
struct Subscription {
    line: Arc<Line>,
    stream: lapin::Consumer,
}

/// Why a subscription ended.
enum End {
    /// Stopped by us, perhaps with a delivery in hand that nobody has seen.
    Stopped(Option<Box<Delivery>>),
    Cancelled,
    ChannelClosed(String),
    ConnectionLost,
    /// Nobody receives any more.
    Abandoned,
}

impl Lane {
    pub(super) async fn run(mut self) {
        self.run_until_stopped().await;
        self.tell_cancelled();
    }

    fn tell_cancelled(&mut self) {
        if let Some(count) = self.cancelled.take() {
            count.send_modify(|lanes| *lanes += 1);
        }
    }

    async fn run_until_stopped(&mut self) {
        let mut pause = FIRST_PAUSE;
        let mut troubled = false;
        while !*self.stop.borrow() && self.broker.is_usable() {
            if let Some(until) = self.silent.until(&self.tool)
                && self.wait(until).await
            {
                return;
            }
            let since = Instant::now();
            match self.open().await {
                Ok(mut subscription) => {
                    if std::mem::take(&mut troubled) {
                        self.report(|tool| ConsumerEvent::Resumed { tool });
                    }
                    match self.pump(&mut subscription).await {
                        End::Stopped(in_hand) => {
                            return self.hand_over(subscription, in_hand).await;
                        }
                        End::Abandoned => return,
                        // Only if it was the lane's own, there is anything to go on with.
                        End::ConnectionLost if !self.broker.is_usable() => return,
                        End::ConnectionLost => {
                            let reason = "connection lost".to_owned();
                            self.report(|tool| ConsumerEvent::ChannelClosed { tool, reason });
                        }
                        End::Cancelled => self.report(|tool| ConsumerEvent::Cancelled { tool }),
                        End::ChannelClosed(reason) => {
                            self.report(|tool| ConsumerEvent::ChannelClosed { tool, reason });
                        }
                    }
                    if since.elapsed() >= STOOD {
                        pause = FIRST_PAUSE;
                    }
                }
                Err(error) => {
                    let reason = match &error {
                        BrokerError::Timeout { .. } => format!("{error}; {IF_UNSERVED}"),
                        other => other.to_string(),
                    };
                    self.report(|tool| ConsumerEvent::Unserved { tool, reason });
                }
            }
            troubled = true;
            if self.wait(Instant::now() + pause).await {
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits, and says whether the lane has to end instead.
    async fn wait(&mut self, until: Instant) -> bool {
        tokio::select! {
            _stopped = self.stop.wait_for(|stop| *stop) => true,
            _loss = self.broker.lost() => true,
            () = sleep_until(until) => false,
        }
    }

    /// Opens over the shared connection, or over one of its own while the queue counts as silent.
    async fn open(&self) -> Result<Subscription, BrokerError> {
        if self.silent.until(&self.tool).is_none() {
            let opened = self.open_over(self.broker.clone()).await;
            if matches!(opened, Err(BrokerError::Timeout { .. })) {
                self.silent.no_answer(&self.tool);
            }
            return opened;
        }
        let own = Broker::connect(self.broker.settings()).await?;
        let opened = self.open_over(own.clone()).await;
        match &opened {
            Err(BrokerError::Timeout { .. } | BrokerError::ConnectionLost { .. }) => {
                self.silent.no_answer(&self.tool);
            }
            Ok(_) | Err(_) => self.silent.answered(&self.tool),
        }
        if opened.is_err() {
            own.abandon();
        }
        opened
    }

    async fn open_over(&self, broker: Broker) -> Result<Subscription, BrokerError> {
        broker.declare_tool(&self.tool).await?;
        let queue = broker.names().tool(&self.tool);
        let channel = broker.channel().await?;
        let qos = channel.basic_qos(self.prefetch, BasicQosOptions::default());
        broker.request(&channel, "set the prefetch", qos).await?;
        let consume = channel.basic_consume(
            short(&queue)?,
            short("")?,
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let consumed = broker.request(&channel, "consume", consume).await;
        let stream = consumed.map_err(|error| error.about(&queue))?;
        Ok(Subscription { line: Arc::new(Line { channel, broker }), stream })
    }

    /// Forwards deliveries until something ends it.
    async fn pump(&mut self, subscription: &mut Subscription) -> End {
        loop {
            let item = tokio::select! {
                biased;
                _stopped = self.stop.wait_for(|stop| *stop) => return End::Stopped(None),
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
            tokio::select! {
                biased;
                _stopped = self.stop.wait_for(|stop| *stop) => return End::Stopped(Some(Box::new(delivery))),
                permit = self.sender.reserve() => match permit {
                    Ok(permit) => permit.send(delivery),
                    Err(_) => return End::Abandoned,
                },
            }
        }
    }

    /// Cancels the consumer and passes on what had been sent before the broker heard of it.
    async fn hand_over(&mut self, mut subscription: Subscription, in_hand: Option<Box<Delivery>>) {
        let line = subscription.line.clone();
        let tag = subscription.stream.tag();
        let cancel = line.channel.basic_cancel(tag, BasicCancelOptions::default());
        if let Err(error) = line.broker.request(&line.channel, "cancel a consumer", cancel).await {
            tracing::debug!(tool = self.tool, %error, "the consumer was not cancelled");
        }
        // Told now and not at the lane's end, which waits for somebody to take the rest.
        self.tell_cancelled();
        let mut next = in_hand.map(|delivery| *delivery);
        // The library ends the stream when the cancellation is confirmed or the channel is gone;
        // the deadline is for a library that forgets to.
        let patience = line.broker.settings().connect_timeout;
        loop {
            if let Some(delivery) = next.take()
                && self.sender.send(delivery).await.is_err()
            {
                return;
            }
            match timeout(patience, subscription.stream.next()).await {
                Ok(Some(Ok(delivery))) => {
                    next = Some(Delivery::new(&self.tool, delivery, line.clone()));
                }
                Ok(Some(Err(_)) | None) | Err(_) => return,
            }
        }
    }

    fn report(&self, event: impl FnOnce(String) -> ConsumerEvent) {
        self.reporter.report(event(self.tool.clone()));
    }
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
