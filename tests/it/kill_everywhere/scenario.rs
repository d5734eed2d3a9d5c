//! One step, one fault: a deployment of its own, from the submission to the verdict.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use oncebox::broker::Broker;
use oncebox::ingress::Publisher;
use oncebox::runtime::RustTools;
use serde_json::json;
use sqlx::Executor as _;

use super::check;
use super::families::{Before, Case, Family};
use super::faults::{Fault, Ill};
use super::hold::{Hold, Ways};
use super::steps::{Finding, Step, Victim};
use crate::support::downstream::Downstream;
use crate::support::eventually;
use crate::support::process::{Process, oncebox};
use crate::support::world::{Running, World};

/// Deadlines as short as the settings allow. The stall margin is longer than a pause goes beyond the lease.
pub(super) const SETTINGS: [(&str, &str); 9] = [
    ("worker.margin", "1s"),
    ("worker.stall_margin", "2500ms"),
    ("worker.drain", "5s"),
    ("broker.confirm_timeout", "2s"),
    ("broker.connect_timeout", "3s"),
    ("relay.lease", "4s"),
    ("relay.poll", "200ms"),
    ("maintain.every", "100ms"),
    ("log.filter", "info"),
];

/// Past the lease of 3 s, counted from its last extension, and past a relay's of 4 s; well before the
/// stall margin after it has passed.
const PAUSE: Duration = Duration::from_millis(4_300);

/// Longer than a lease, a proof of absence and a busy machine.
const ENDED_WITHIN_SECONDS: u64 = 60;

pub(super) struct Stage {
    pub(super) world: World,
    pub(super) downstream: Downstream,
    ways: Ways,
}

/// Plays it through; answers what was wrong in the end.
pub(super) async fn play(step: &Step, fault: Fault) -> Vec<String> {
    let stage = Stage::set(step).await;
    let mut roles = vec![stage.run(step.victim.others())];
    if step.of_unknowns {
        stage.make_unknown(step).await;
    }
    let hold = Hold::of(step.held, &stage.world, &stage.ways, &stage.downstream).await;
    if step.of_unknowns {
        stage.answer_look_ups(step).await;
    }
    let mut victims = stage.victims(step).await;
    if !step.of_unknowns {
        stage.submit(step).await;
    }
    hold.reached(step.stands()).await;
    for victim in &mut victims {
        match fault.ill {
            Ill::Killed => victim.kill(),
            Ill::Paused => victim.signal("STOP"),
            Ill::Cut => {}
        }
    }
    hold.end(fault).await;
    roles.extend(step.victim.role().map(|role| stage.run(role)));
    if fault.ill == Ill::Paused {
        tokio::time::sleep(PAUSE).await;
        victims.iter().for_each(|victim| victim.signal("CONT"));
    }
    let mut wrong = match step.victim {
        Victim::Person(finding) => stage.ask_again(step, fault, finding, &mut victims).await,
        Victim::Workers | Victim::Worker | Victim::Relay | Victim::Maintain => Vec::new(),
    };
    wrong.extend(stage.ends(step, fault).await);
    wrong.extend(stage.stop(step, fault, victims, roles).await);
    wrong.extend(check::records(&stage, step, fault).await);
    wrong
}

impl Step {
    fn families(&self) -> Vec<Family> {
        let concerned = |family: &Family| self.cases.iter().any(|case| case.family == *family);
        Family::ALL.into_iter().filter(concerned).collect()
    }

    /// How much stands at the step before the fault.
    fn stands(&self) -> usize {
        match (self.victim, self.name) {
            // The rows of one batch go in one transaction.
            (Victim::Relay, "remove") => 1,
            _ => self.cases.len(),
        }
    }
}

impl Victim {
    fn role(self) -> Option<&'static str> {
        match self {
            Self::Workers | Self::Worker => Some("worker"),
            Self::Relay => Some("relay"),
            Self::Maintain => Some("maintain"),
            Self::Person(_) => None,
        }
    }

    fn others(self) -> &'static str {
        match self {
            Self::Workers | Self::Worker => "relay,maintain",
            Self::Relay => "worker,maintain",
            Self::Maintain => "relay,worker",
            Self::Person(_) => "relay,worker,maintain",
        }
    }
}

impl Stage {
    async fn set(step: &Step) -> Self {
        let world = World::new().await;
        let journal = check::journal(&world);
        let downstream = Downstream::start_with(&["--journal", journal.to_str().unwrap()]);
        let ways = Ways::to(&world).await;
        let stage = Self { world, downstream, ways };
        for family in step.families() {
            let text = (step.contract)(family, &stage.downstream.url).text();
            stage.contract(family, &text).await;
        }
        stage.downstream.jobs().take(Duration::from_millis(200)).await;
        stage
    }

    async fn contract(&self, family: Family, text: &str) {
        let read = oncebox::contract_file::read(text, Duration::from_secs(1))
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        std::fs::write(self.file(family), text).unwrap();
        let (tool, version) = (read.tool.as_str(), read.version.as_str());
        let immaterial = oncebox::store::Immaterial::of(&read);
        let mut connection = self.world.connect().await;
        oncebox::store::register(
            &mut connection,
            tool,
            version,
            text,
            &read.material_digest(),
            immaterial,
        )
        .await
        .unwrap();
    }

    fn file(&self, family: Family) -> PathBuf {
        self.world.contracts.join(format!("{}.yaml", family.tool()))
    }

    /// Roles in this process, on straight ways.
    fn run(&self, roles: &str) -> Running {
        self.world.run_with(roles, &SETTINGS, RustTools::default())
    }

    /// The real binary, on the ways that are held and cut.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = oncebox(&self.world, arguments);
        for (key, value) in SETTINGS {
            command.env(format!("ONCEBOX_{}", key.replace('.', "_").to_uppercase()), value);
        }
        command.env("DATABASE_URL", &self.ways.database).env("AMQP_URL", &self.ways.amqp);
        command.stdout(std::process::Stdio::null());
        command
    }

    async fn victims(&self, step: &Step) -> Vec<Process> {
        let run = |role: &str| self.command(&["run", "--role", role]);
        match (step.victim, step.victim.role()) {
            (Victim::Workers, _) => {
                let of = |family| {
                    let mut command = run("worker");
                    command.env("ONCEBOX_CONTRACTS", self.file(family));
                    Process::start(command)
                };
                step.families().into_iter().map(of).collect()
            }
            (_, Some(role)) => vec![Process::start(run(role))],
            (Victim::Person(finding), None) => self.resolve(step, finding).await,
            (_, None) => unreachable!("only a person has no role"),
        }
    }

    /// A person's command for each operation.
    async fn resolve(&self, step: &Step, finding: Finding) -> Vec<Process> {
        let mut commands = Vec::new();
        for case in &step.cases {
            let key = format!("acme:test:run:{}", case.step());
            let receipt = check::receipt(&self.world, *case).await.unwrap_or_default();
            let found: &[&str] = match finding {
                Finding::Applied => &["--applied", &receipt],
                Finding::NotApplied => &["--not-applied"],
            };
            let who = ["--by", "ann", "--reason", "looked it up"];
            let arguments = [&["ops", "resolve", &key], found, &who].concat();
            commands.push(Process::start(self.command(&arguments)));
        }
        commands
    }

    /// The commands of the fault end and tell the truth; then the person says it again.
    async fn ask_again(
        &self,
        step: &Step,
        fault: Fault,
        finding: Finding,
        victims: &mut Vec<Process>,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        let confirmed = fault == Fault { ill: Ill::Paused, done: true };
        for victim in victims.iter_mut().filter(|_| fault.ill != Ill::Killed) {
            let code = ended(victim).await;
            if (code == Some(0)) != confirmed {
                wrong.push(format!("resolve ended with {code:?}"));
            }
        }
        victims.clear();
        for (mut again, case) in self.resolve(step, finding).await.into_iter().zip(&step.cases) {
            let (code, wanted) = (ended(&mut again).await, i32::from(fault.done));
            if code != Some(wanted) {
                wrong.push(format!("{}: resolved again with {code:?}", case.step()));
            }
        }
        wrong
    }

    async fn submit(&self, step: &Step) {
        let mut so_far = 0;
        for before in [Before::Nothing, Before::Made, Before::NotMade] {
            let cases: Vec<&Case> =
                step.cases.iter().filter(|case| case.before == before).collect();
            if cases.is_empty() {
                continue;
            }
            so_far += u64::try_from(cases.len()).unwrap();
            match before {
                Before::Nothing => {}
                Before::Made => self.spoil("drop_response").await,
                Before::NotMade => self.spoil("drop_before_effect").await,
            }
            let mut connection = self.world.connect().await;
            connection.execute("begin").await.unwrap();
            for case in cases {
                let arguments = json!({"queue_id": "q", "subject": case.step()}).to_string();
                let submission = self.world.submission(case.family.tool(), case.step(), &arguments);
                Publisher::default().submit(&mut connection, &submission).await.unwrap();
            }
            connection.execute("commit").await.unwrap();
            if before != Before::Nothing {
                self.downstream.tickets().arrived(so_far, 30).await;
                self.downstream.control(json!({"remove": "before"})).await;
            }
        }
    }

    async fn spoil(&self, how: &str) {
        self.downstream.control(json!({"name": "before", "on": "tickets", how: true})).await;
    }

    /// First attempts without an answer, and nobody to ask.
    async fn make_unknown(&self, step: &Step) {
        self.downstream.lookups().always(500).await;
        let roles = self.run(if step.victim == Victim::Maintain { "worker" } else { "relay" });
        self.submit(step).await;
        let unknown = "select count(*) from oncebox.operations where status = 'unknown'";
        let all = i64::try_from(step.cases.len()).unwrap();
        eventually("all are unknown", 40, async || {
            (self.world.count(unknown).await == all).then_some(())
        })
        .await;
        roles.stop().await;
        if let Victim::Person(Finding::NotApplied) = step.victim {
            let over = "select count(*) from oncebox.operations where attempts_over_at > now()";
            eventually("their attempts are over", 20, async || {
                (self.world.count(over).await == 0).then_some(())
            })
            .await;
        }
    }

    /// From here on the downstream knows, if it is role maintain that asks. A person is the only one who knows otherwise.
    async fn answer_look_ups(&self, step: &Step) {
        if step.victim == Victim::Maintain {
            self.downstream.lookups().as_usual().await;
        }
    }

    /// Waits until every operation has ended as it may. What does not is told by [`check`].
    async fn ends(&self, step: &Step, fault: Fault) -> Vec<String> {
        let began = std::time::Instant::now();
        loop {
            let mut left = Vec::new();
            for case in &step.cases {
                let (status, more) = self.world.status(case.step()).await;
                if !step.endings(fault, *case).contains(&status.as_str()) {
                    left.push(format!("{}: is {status} {more}", case.step()));
                }
            }
            if left.is_empty() || began.elapsed().as_secs() > ENDED_WITHIN_SECONDS {
                return left;
            }
            if step.victim == Victim::Maintain {
                self.a_minute_passes().await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A record that was taken to be looked up is left alone for a minute, whatever became of the one who took it.
    async fn a_minute_passes(&self) {
        let sooner = "update oncebox.operations set next_lookup_at = now() \
            where status = 'unknown' and next_lookup_at > now() + interval '30 seconds' \
              and next_lookup_at < now() + interval '56 seconds'";
        self.world.connect().await.execute(sooner).await.unwrap();
    }

    /// Everybody stops in order, and nothing is left to do.
    async fn stop(
        &self,
        step: &Step,
        fault: Fault,
        mut victims: Vec<Process>,
        roles: Vec<Running>,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        if fault.ill != Ill::Killed {
            victims.iter().for_each(|victim| victim.signal("TERM"));
            for victim in &mut victims {
                let code = ended(victim).await;
                if code != Some(0) {
                    wrong.push(format!("its process ended with {code:?}"));
                }
            }
        }
        eventually("the outbox is empty", 30, async || {
            (self.world.count("select count(*) from oncebox.outbox").await == 0).then_some(())
        })
        .await;
        for running in roles {
            running.stop().await;
        }
        let broker = Broker::connect(&self.world.broker("look")).await.unwrap();
        for family in step.families() {
            let ready = broker.ready_count(family.tool()).await.unwrap();
            if ready > 0 {
                wrong.push(format!("{ready} messages of {} were not acked", family.tool()));
            }
        }
        tokio::time::timeout(Duration::from_secs(5), broker.close()).await.unwrap();
        wrong
    }
}

/// The exit code of a process that ends by itself; `None`: by a signal, or not within 20 s.
async fn ended(process: &mut Process) -> Option<i32> {
    for _ in 0..1000 {
        if !process.runs() {
            return process.exit_code();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    None
}
