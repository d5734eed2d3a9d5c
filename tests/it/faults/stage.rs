//! A deployment on which one role, or the application, works through a proxy that loses chunks.

use std::time::{Duration, Instant};

use oncebox::broker::Broker;
use oncebox::ingress::Submission;
use oncebox::runtime::RustTools;
use sqlx::{Connection as _, PgConnection};
use tokio::sync::Mutex;

use crate::support::cutter::{Cutter, Loss};
use crate::support::downstream::{Downstream, mails, tickets};
use crate::support::eventually;
use crate::support::history::History;
use crate::support::history_check::Report;
use crate::support::process::{Process, oncebox};
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
const QUICK_CONTRACT: &str = "retry: {initial: 20ms, max: 200ms}\nlease: 8s\n";

/// Longer than a lease, a sweep after a minute, and a busy machine.
const SETTLED_WITHIN: Duration = Duration::from_secs(150);

pub(super) struct Stage {
    pub(super) world: World,
    pub(super) history: History,
    pub(super) downstream: Downstream,
    /// Looks at the operations; made again after a restart.
    eye: Mutex<Option<PgConnection>>,
}

impl Stage {
    pub(super) async fn new() -> Self {
        Self::on(World::new().await).await
    }

    pub(super) async fn on(world: World) -> Self {
        let (history, downstream) = History::begin(&world).await;
        world.contract(&tickets(&downstream.url, QUICK_CONTRACT)).await;
        world.contract(&mails(&downstream.url, QUICK_CONTRACT)).await;
        Self { world, history, downstream, eye: Mutex::default() }
    }

    /// Runs roles in this process, with `more` settings (`database.url` through a proxy).
    pub(super) fn run(&self, roles: &str, more: &[(&str, &str)]) -> Running {
        let settings: Vec<_> = QUICK.iter().chain(more).copied().collect();
        self.world.run_with(roles, &settings, RustTools::default())
    }

    /// The real binary in these roles, with the same settings and `more` variables.
    pub(super) fn process(&self, roles: &str, more: &[(&str, &str)]) -> Process {
        let mut command = oncebox(&self.world, &["run", "--role", roles]);
        for (key, value) in QUICK {
            command.env(format!("ONCEBOX_{}", key.replace('.', "_").to_uppercase()), value);
        }
        command.envs(more.iter().copied()).stdout(std::process::Stdio::null());
        Process::start(command)
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

    /// Waits until no operation is pending. One that is parked never ends by itself: that fails at once.
    pub(super) async fn settled(&self, name: &str) {
        let began = Instant::now();
        let pending = "select count(*) from oncebox.operations where status = 'pending'";
        let parked = "select count(*) from oncebox.operations where phase = 'parked'";
        while self.look(pending).await != Some(0) {
            if began.elapsed() > SETTLED_WITHIN || self.look(parked).await.unwrap_or(0) > 0 {
                panic!("not settled after {name}: {:#?}", self.left().await);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What is pending, for a person.
    async fn left(&self) -> Vec<String> {
        let mut connection = self.world.connect().await;
        sqlx::query_scalar(
            "select concat_ws(' ', operation_key, phase, reason, 'due', due_at - now(), 'lease', lease_until - now(), \
               'lost', lost_claims, 'sweeps', sweeps, 'queued', now() - queued_at, \
               'rows', (select count(*) from oncebox.outbox x where x.operation_id = o.operation_id), \
               (select concat_ws(' ', x.attempts, x.last_error) from oncebox.outbox x where x.operation_id = o.operation_id limit 1)) \
             from oncebox.operations o where status = 'pending' order by operation_key limit 20",
        )
        .fetch_all(&mut connection)
        .await
        .unwrap()
    }

    /// Waits until every pending operation is claimed, if only by the dead.
    pub(super) async fn nobody_waits(&self) {
        let waiting = "select count(*) from oncebox.operations where status = 'pending' and lease_until is null";
        let what = "every operation is claimed";
        eventually(what, 60, async || (self.look(waiting).await? == 0).then_some(())).await;
    }

    /// One number; `None` while PostgreSQL is away.
    async fn look(&self, sql: &'static str) -> Option<i64> {
        let mut eye = self.eye.lock().await;
        let mut connection = match eye.take() {
            Some(connection) => connection,
            None => PgConnection::connect(&self.world.database).await.ok()?,
        };
        let number = sqlx::query_scalar(sql).fetch_one(&mut connection).await.ok()?;
        *eye = Some(connection);
        Some(number)
    }

    /// Rounds in which the 1st, 2nd, 3rd … chunk is lost, in each of the ways: with connections that
    /// stand, and with connections that have to be made first.
    pub(super) async fn lose_every_chunk(&self, cutter: &Cutter, losses: &[Loss]) {
        self.round("warm-up").await;
        for cold in [false, true] {
            let chunks = self.count_chunks(cutter, cold).await;
            for loss in losses {
                let name = format!("{loss:?}-{}", if cold { "cold" } else { "warm" });
                let passing = if *loss == Loss::FromServer { chunks.1 } else { chunks.0 };
                let mut lost = 0;
                for n in 1..=passing {
                    if cold {
                        cutter.cut();
                    }
                    cutter.lose(n, *loss);
                    self.round(&format!("{name}-{n}")).await;
                    lost += usize::from(cutter.disarm());
                }
                println!("{name}: {lost} of {passing} chunks lost");
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
        self.nothing_to_do().await;
        for running in roles {
            running.stop().await;
        }
        self.verdict().await
    }

    /// Waits until every operation has ended and nothing is to be published.
    pub(super) async fn nothing_to_do(&self) {
        self.settled("the last").await;
        eventually("the outbox is empty", 30, async || {
            (self.world.count("select count(*) from oncebox.outbox").await == 0).then_some(())
        })
        .await;
    }

    /// Once the roles have stopped: everything against everything.
    pub(super) async fn verdict(self) -> Report {
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
