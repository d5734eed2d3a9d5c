//! Both services restarted under load, a worker killed, a worker frozen past its lease, a downstream
//! that fails in every way: no acknowledged operation is lost, none has a second effect, and every
//! label is true.
//!
//! `FAULTS_SEED` repeats a schedule; each run prints its own.

use std::cell::Cell;
use std::time::{Duration, Instant};

use serde_json::json;
use uuid::Uuid;

use super::stage::Stage;
use crate::support::downstream::Downstream;
use crate::support::process::Process;
use crate::support::servers::{Ending, Server, Servers};
use crate::support::{eventually, management};

const LEAST_TRANSACTIONS: usize = 100;

const BETWEEN_TRANSACTIONS: Duration = Duration::from_millis(200);

/// Longer than the contracts' lease of eight seconds.
const FROZEN: Duration = Duration::from_secs(10);

/// RabbitMQ 3.10 killed seconds after a quorum queue was declared may never serve that queue again
/// (see `young_queue`).
const QUEUES_ARE_SAFE: Duration = Duration::from_secs(12);

#[derive(Clone, Copy, Debug)]
enum Fault {
    Restart(Server, Ending),
    KillWorker,
    KillRelay,
    FreezeWorker,
}

const FAULTS: [Fault; 8] = [
    Fault::Restart(Server::Postgres, Ending::Orderly),
    Fault::Restart(Server::Postgres, Ending::Abrupt),
    Fault::Restart(Server::Rabbit, Ending::Orderly),
    Fault::Restart(Server::Rabbit, Ending::Abrupt),
    Fault::KillWorker,
    Fault::KillWorker,
    Fault::KillRelay,
    Fault::FreezeWorker,
];

#[tokio::test]
async fn everything_at_once_loses_nothing_and_doubles_nothing() {
    let mut chance = Chance::from_environment();
    let mut servers = Servers::start().await;
    let stage = Stage::on(servers.world().await).await;
    spoil(&stage.downstream, &mut chance).await;
    let mut fleet = Fleet::start(&stage);
    let over = Cell::new(false);
    let load = async {
        let mut transactions = 0;
        while !over.get() || transactions < LEAST_TRANSACTIONS {
            let three = stage.three(&format!("load-{transactions:03}"));
            stage.history.publish_at_last(&stage.world.database, &three).await;
            transactions += 1;
            tokio::time::sleep(BETWEEN_TRANSACTIONS).await;
        }
        transactions
    };
    let faults = async {
        tokio::time::sleep(QUEUES_ARE_SAFE).await;
        for fault in chance.shuffled(FAULTS) {
            tokio::time::sleep(Duration::from_millis(500 + chance.below(1500))).await;
            println!("{fault:?}");
            fleet.suffer(fault, &stage, &mut servers, &mut chance).await;
        }
        fleet.thaw().await;
        over.set(true);
    };
    let (transactions, ()) = tokio::join!(load, faults);
    stage.downstream.reset().await;
    stage.nothing_to_do().await;
    let (api, prefix) = (servers.variable("RABBITMQ_API"), stage.world.prefix.clone());
    let queues = format!("{prefix}oncebox.");
    eventually("every message is acked", 60, async || {
        (management::messages(&api, &queues).await? == 0).then_some(())
    })
    .await;
    fleet.stop();
    let report = stage.verdict().await;
    assert_eq!(report.operations, 3 * transactions);
    assert!(report.lost_claims > 0, "no claim was lost: the faults hit nothing");
}

/// Faults of the downstream, each on every so manieth call. A ticket may be sent again, so its faults
/// only cost attempts; a mail may become unknown.
async fn spoil(downstream: &Downstream, chance: &mut Chance) {
    let seldom = |chance: &mut Chance| 7 + chance.below(12);
    for on in ["tickets", "mail"] {
        for fault in [
            json!({"drop_response": true}),
            json!({"drop_before_effect": true}),
            json!({"status": 429, "retry_after": "1"}),
            json!({"status": 500}),
            json!({"status_after_effect": 502}),
            json!({"delay_ms_after_effect": 2500}),
            json!({"delay_ms_before_effect": 400 + chance.below(600)}),
            json!({"garbage": "receipt"}),
        ] {
            let mut rule = fault;
            rule["on"] = on.into();
            rule["every"] = seldom(chance).into();
            downstream.control(rule).await;
        }
    }
}

/// The real processes. The first worker is the one that freezes, the others get killed.
struct Fleet {
    workers: Vec<Process>,
    others: Vec<Process>,
    frozen_at: Option<Instant>,
}

impl Fleet {
    fn start(stage: &Stage) -> Self {
        let workers = (0..3).map(|number| worker(stage, number)).collect();
        let others = (0..2).map(|_| stage.process("relay,maintain", &[])).collect();
        Self { workers, others, frozen_at: None }
    }

    async fn suffer(
        &mut self,
        fault: Fault,
        stage: &Stage,
        servers: &mut Servers,
        chance: &mut Chance,
    ) {
        match fault {
            Fault::Restart(server, ending) => servers.restart(server, ending).await,
            Fault::KillWorker => {
                let which = 1 + chance.index(self.workers.len() - 1);
                in_the_middle(stage, which, || self.workers[which].kill()).await;
                self.workers[which] = worker(stage, which);
            }
            Fault::KillRelay => {
                let which = chance.index(self.others.len());
                self.others[which].kill();
                self.others[which] = stage.process("relay,maintain", &[]);
            }
            Fault::FreezeWorker => {
                in_the_middle(stage, 0, || self.workers[0].signal("STOP")).await;
                self.frozen_at = Some(Instant::now());
            }
        }
    }

    /// The frozen worker goes on, its leases long over.
    async fn thaw(&mut self) {
        let since = self.frozen_at.take().expect("one fault froze a worker");
        tokio::time::sleep(FROZEN.saturating_sub(since.elapsed())).await;
        self.workers[0].signal("CONT");
    }

    /// All of them have come through everything without being started anew, and drain in time.
    fn stop(mut self) {
        for process in self.workers.iter_mut().chain(&mut self.others) {
            assert!(process.runs(), "a process ended by itself");
            assert_eq!(process.stop(40), Some(0));
        }
    }
}

fn worker(stage: &Stage, number: usize) -> Process {
    let name = format!("w{number}");
    stage.process("worker", &[("ONCEBOX_WORKER_CONCURRENCY", "8"), ("ONCEBOX_WORKER_NAME", &name)])
}

/// Does `harm` while the worker waits for answers of the downstream.
async fn in_the_middle(stage: &Stage, worker: usize, harm: impl FnOnce()) {
    stage.downstream.control(json!({"pause": true})).await;
    let owner = format!("w{worker}:%");
    eventually("the worker waits for the downstream", 60, async || {
        let mut connection = stage.world.connect().await;
        let held: i64 = sqlx::query_scalar(
            "select count(*) from oncebox.operations where phase = 'sent' and owner like $1",
        )
        .bind(&owner)
        .fetch_one(&mut connection)
        .await
        .unwrap();
        (held > 0).then_some(())
    })
    .await;
    harm();
    stage.downstream.control(json!({"pause": false})).await;
}

/// Small repeatable random numbers (SplitMix64).
struct Chance(u64);

impl Chance {
    fn from_environment() -> Self {
        #[allow(clippy::disallowed_methods, reason = "only which schedule a test runs")]
        let given = std::env::var("FAULTS_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| Uuid::new_v4().as_u64_pair().0);
        println!("FAULTS_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length.try_into().unwrap())).unwrap()
    }

    fn shuffled<const N: usize>(&mut self, mut faults: [Fault; N]) -> [Fault; N] {
        for last in (1..N).rev() {
            faults.swap(last, self.index(last + 1));
        }
        faults
    }
}
