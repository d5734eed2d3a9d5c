//! Random faults at random moments, several at once: what the table's steps leave out.
//!
//! A seed says which faults there are and in which order, not at which instruction they strike.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;

use super::check;
use super::families::{Before, Case, Family};
use super::stage::{Stage, ended};
use crate::support::contracts::ContractText;
use crate::support::process::Process;

const ROUNDS: usize = 30;

/// The roles that are hurt. Two workers: one may take over from the other.
const ROLES: [&str; 4] = ["worker", "worker", "relay", "maintain"];

/// Calls whose answers are spoilt, and how.
const CALLS: [&str; 5] = ["tickets", "jobs", "poll", "lookup", "policy"];
const SPOILT: [&str; 5] = [
    r#"{"drop_response": true}"#,
    r#"{"drop_before_effect": true}"#,
    r#"{"status": 500}"#,
    r#"{"garbage": "body"}"#,
    r#"{"delay_ms_after_effect": 2000}"#,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_faults_leave_one_effect_a_key_and_true_labels() {
    let walks: [(u64, fn(Family, &str) -> ContractText); 3] =
        [(11, Family::patient), (12, Family::patient_jobs), (13, Family::patient_asking)];
    let walks = walks.map(|(seed, contract)| async move {
        let mut walk = Walk::begin(seed, contract).await;
        walk.run().await;
        let wrong = walk.end().await;
        wrong.into_iter().map(|what| format!("seed {seed}: {what}")).collect::<Vec<_>>()
    });
    let wrong = futures::future::join_all(walks).await.concat();
    assert!(wrong.is_empty(), "broken promises:\n{}", wrong.join("\n"));
}

struct Walk {
    stage: Stage,
    random: Random,
    processes: Vec<Member>,
    cases: Vec<Case>,
    log: Vec<String>,
}

/// A process, and until when it is stopped.
struct Member {
    role: &'static str,
    process: Process,
    stopped_until: Option<Instant>,
}

impl Walk {
    async fn begin(seed: u64, contract: fn(Family, &str) -> ContractText) -> Self {
        println!("seed {seed}");
        let stage = Stage::new().await;
        for family in Family::ALL {
            let text = contract(family, &stage.downstream.url).text();
            stage.contract(family, &text).await;
        }
        stage.downstream.jobs().take(Duration::from_millis(200)).await;
        let start = |role| Member { role, process: stage.process(role, None), stopped_until: None };
        let processes = ROLES.map(start).into();
        Self { stage, random: Random(seed), processes, cases: Vec::new(), log: Vec::new() }
    }

    async fn run(&mut self) {
        for number in 1..=ROUNDS {
            let of = |family| Case { family, before: Before::Nothing, number };
            let cases = Family::ALL.map(of);
            self.stage.submit(&cases).await;
            self.cases.extend(cases);
            self.strike().await;
            self.wake();
            sleep(Duration::from_millis(self.random.below(300))).await;
        }
    }

    async fn strike(&mut self) {
        let fault = match self.random.below(6) {
            0 => self.kill(),
            1 => self.stop(),
            2 => {
                self.stage.ways.cut_postgres();
                "postgres is cut".to_owned()
            }
            3 => {
                self.stage.ways.cut_rabbit();
                "rabbit is cut".to_owned()
            }
            _ => self.spoil().await,
        };
        self.log.push(fault);
    }

    fn pick(&mut self) -> &mut Member {
        let picked = self.random.below(ROLES.len() as u64);
        &mut self.processes[usize::try_from(picked).unwrap()]
    }

    fn kill(&mut self) -> String {
        let picked = self.random.below(ROLES.len() as u64);
        let picked = usize::try_from(picked).unwrap();
        let role = ROLES[picked];
        self.processes[picked].process.kill();
        let process = self.stage.process(role, None);
        self.processes[picked] = Member { role, process, stopped_until: None };
        format!("{role} is killed")
    }

    /// For less than the lease, or for longer; never beyond the stall margin after it.
    fn stop(&mut self) -> String {
        let time = Duration::from_millis(100 + self.random.below(4_200));
        let member = self.pick();
        if member.stopped_until.is_none() {
            member.process.signal("STOP");
            member.stopped_until = Some(Instant::now() + time);
        }
        format!("{} is stopped for {time:?}", member.role)
    }

    async fn spoil(&mut self) -> String {
        let call = CALLS[usize::try_from(self.random.below(CALLS.len() as u64)).unwrap()];
        let how = SPOILT[usize::try_from(self.random.below(SPOILT.len() as u64)).unwrap()];
        let mut rule: serde_json::Value = serde_json::from_str(how).unwrap();
        rule["on"] = json!(call);
        rule["times"] = json!(1 + self.random.below(3));
        let told = rule.to_string();
        self.stage.downstream.control(rule).await;
        told
    }

    fn wake(&mut self) {
        for member in &mut self.processes {
            if member.stopped_until.is_some_and(|until| Instant::now() >= until) {
                member.process.signal("CONT");
                member.stopped_until = None;
            }
        }
    }

    /// Everybody dies, sound ones go on, and a person lets go on what had killed too many.
    async fn end(mut self) -> Vec<String> {
        self.processes.clear();
        self.stage.downstream.reset().await;
        self.stage.downstream.jobs().take(Duration::from_millis(200)).await;
        let roles = vec![self.stage.run("relay,worker,maintain")];
        let began = Instant::now();
        loop {
            let left = self.left().await;
            if left.is_empty() {
                break;
            }
            if began.elapsed() > Duration::from_secs(90) {
                let (log, dump) = (self.log.join("\n"), self.stage.dump().await);
                return vec![format!("{left:?} do not end\n{log}\n{dump}")];
            }
            self.retry_parked().await;
            self.stage.a_minute_passes().await;
            sleep(Duration::from_millis(100)).await;
        }
        let mut wrong = self.stage.stop(&Family::ALL, Vec::new(), roles).await;
        wrong.extend(check::records(&self.stage, &self.cases, endings).await);
        if !wrong.is_empty() {
            wrong.push(format!("faults:\n{}", self.log.join("\n")));
        }
        let effects = self.stage.downstream.total().await;
        println!("{} operations, {effects} effects", self.cases.len());
        wrong
    }

    /// Those that have not ended as they may.
    async fn left(&self) -> Vec<String> {
        let statuses = self.stage.statuses().await;
        let left = self.cases.iter().filter_map(|case| {
            let name = case.step();
            let (_, status) = statuses.iter().find(|(step, _)| *step == name)?;
            (!endings(*case).contains(&status.as_str())).then(|| format!("{name} {status}"))
        });
        left.collect()
    }

    async fn retry_parked(&self) {
        let parked = "select count(*) from oncebox.operations where phase = 'parked' and reason = 'worker_lost'";
        if self.stage.count(parked).await == 0 {
            return;
        }
        for key in self.stage.parked().await {
            let arguments = ["ops", "retry", &key, "--by", "ann", "--reason", "sound again"];
            let mut retry = Process::start(self.stage.command(&arguments));
            ended(&mut retry).await;
        }
    }
}

fn endings(case: Case) -> &'static [&'static str] {
    match case.family {
        Family::Deduplicating | Family::LookedUp => &["applied"],
        Family::Blind => &["applied", "unknown"],
    }
}

/// A xorshift generator: the same faults from the same seed, on any machine.
struct Random(u64);

impl Random {
    /// From 0 to `bound` - 1.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
