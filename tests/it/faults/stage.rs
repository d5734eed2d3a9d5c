//! A deployment on which one role, or the application, works through a proxy that loses chunks.

use std::time::Duration;

use oncebox::broker::Broker;
use oncebox::ingress::Submission;
use oncebox::runtime::RustTools;
use sqlx::PgConnection;
use tokio::sync::Mutex;

use crate::support::cutter::{Cutter, Loss};
use crate::support::downstream::{Downstream, mails, tickets};
use crate::support::eventually;
use crate::support::history::History;
use crate::support::history_check::Report;
use crate::support::world::{Running, World};

/// Deadlines as short as the settings allow, so that hundreds of faults take seconds each at most.
const QUICK: [(&str, &str); 7] = [
    ("worker.margin", "1s"),
    ("broker.confirm_timeout", "1s"),
    ("broker.connect_timeout", "3s"),
    ("broker.heartbeat", "2s"),
    ("relay.lease", "3s"),
    ("relay.poll", "200ms"),
    ("maintain.every", "100ms"),
];

/// For both contracts: waits that a test can wait for.
const QUICK_CONTRACT: &str = "retry: {initial: 20ms, max: 200ms}\nlease: 10s\n";

pub(super) struct Stage {
    pub(super) world: World,
    pub(super) history: History,
    _downstream: Downstream,
    eye: Mutex<PgConnection>,
}

impl Stage {
    pub(super) async fn new() -> Self {
        Self::on(World::new().await).await
    }

    pub(super) async fn on(world: World) -> Self {
        let (history, downstream) = History::begin(&world).await;
        world.contract(&tickets(&downstream.url, QUICK_CONTRACT)).await;
        world.contract(&mails(&downstream.url, QUICK_CONTRACT)).await;
        let eye = Mutex::new(world.connect().await);
        Self { world, history, _downstream: downstream, eye }
    }

    /// Runs roles in this process, with `more` settings (`database.url` through a proxy).
    pub(super) fn run(&self, roles: &str, more: &[(&str, &str)]) -> Running {
        let settings: Vec<_> = QUICK.iter().chain(more).copied().collect();
        self.world.run_with(roles, &settings, RustTools::default())
    }

    /// Two tickets and a mail.
    pub(super) fn three(&self, name: &str) -> Vec<Submission> {
        vec![
            self.mail(&format!("{name}-a")),
            self.ticket(&format!("{name}-b")),
            self.ticket(&format!("{name}-c")),
        ]
    }

    pub(super) fn ticket(&self, step: &str) -> Submission {
        let arguments = format!(r#"{{"subject":"{step}","body":"text"}}"#);
        self.world.submission("tickets.create", step, &arguments)
    }

    pub(super) fn mail(&self, step: &str) -> Submission {
        let arguments = format!(r#"{{"to":"somebody","subject":"{step}"}}"#);
        self.world.submission("mail.send", step, &arguments)
    }

    /// Publishes three operations and waits until all have ended.
    pub(super) async fn round(&self, name: &str) {
        self.history.publish_at_last(&self.world.database, &self.three(name)).await;
        self.settled(name).await;
    }

    /// Waits until no operation is pending.
    pub(super) async fn settled(&self, name: &str) {
        let mut eye = self.eye.lock().await;
        eventually(&format!("every operation has ended after {name}"), 60, async || {
            let pending: i64 = sqlx::query_scalar(
                "select count(*) from oncebox.operations where status = 'pending'",
            )
            .fetch_one(&mut *eye)
            .await
            .unwrap();
            (pending == 0).then_some(())
        })
        .await;
    }

    /// Rounds in which the 1st, 2nd, 3rd … chunk is lost, in each of the ways: with connections that
    /// stand, and with connections that have to be made first.
    pub(super) async fn lose_every_chunk(&self, cutter: &Cutter, losses: &[Loss]) {
        self.round("warm-up").await;
        for cold in [false, true] {
            let chunks = self.count_chunks(cutter, cold).await;
            for loss in losses {
                let (name, passing) = match loss {
                    Loss::Request => ("request", chunks.0),
                    Loss::Answer => ("answer", chunks.0),
                    Loss::FromServer => ("from-server", chunks.1),
                };
                let mut lost = 0;
                for n in 1..=passing {
                    if cold {
                        cutter.cut();
                    }
                    cutter.lose(n, *loss);
                    self.round(&format!("{name}-{cold}-{n}")).await;
                    lost += usize::from(cutter.disarm());
                }
                println!("{name}, cold {cold}: {lost} of {passing} chunks lost");
                // A busy machine puts two answers into one chunk.
                assert!(lost > 0 && lost * 3 >= passing, "{name}: {lost} of {passing} were lost");
            }
        }
    }

    /// How many chunks one undisturbed round takes to the server and back.
    async fn count_chunks(&self, cutter: &Cutter, cold: bool) -> (usize, usize) {
        if cold {
            cutter.cut();
        }
        let before = cutter.chunks();
        self.round(&format!("count-{cold}")).await;
        let after = cutter.chunks();
        (after.0 - before.0, after.1 - before.1)
    }

    /// Waits until nothing is left to do, stops the roles, holds everything against everything.
    pub(super) async fn end(self, roles: Vec<Running>) -> Report {
        self.settled("the last").await;
        eventually("the outbox is empty", 30, async || {
            (self.world.count("select count(*) from oncebox.outbox").await == 0).then_some(())
        })
        .await;
        for running in roles {
            running.stop().await;
        }
        self.queues_are_empty().await;
        let report = self.history.check(&self.world).await;
        println!("{report}");
        report
    }

    /// With all consumers gone, what was not acked is ready again.
    async fn queues_are_empty(&self) {
        let broker = Broker::connect(&self.world.broker("look")).await.unwrap();
        for tool in ["tickets.create", "mail.send"] {
            let ready = broker.ready_count(tool).await.unwrap();
            assert_eq!(ready, 0, "messages of {tool} were not acked");
        }
        tokio::time::timeout(Duration::from_secs(5), broker.close()).await.unwrap();
    }
}
