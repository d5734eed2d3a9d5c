//! One step, one fault: from the submission to the verdict.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use serde_json::json;

use super::check;
use super::families::{Before, Family};
use super::faults::{Fault, Ill};
use super::hold::Hold;
use super::stage::{Stage, ended};
use super::steps::{Finding, Step, Victim};
use crate::support::process::Process;
use crate::support::world::Running;

/// Past a relay's lease of 4 s; a worker's passes sooner. Well before the stall margin after it.
const PAUSE: Duration = Duration::from_millis(4_300);

/// Longer than a lease, a proof of absence and a busy machine.
const ENDED_WITHIN: Duration = Duration::from_secs(60);

/// Plays it through; answers what was wrong in the end.
pub(super) async fn play(step: &Step, fault: Fault) -> Vec<String> {
    let scenario = Scenario { step, fault, stage: Stage::new().await };
    match AssertUnwindSafe(scenario.play()).catch_unwind().await {
        Ok(wrong) => wrong,
        Err(_) => {
            vec![format!("did not come to its end, see above:\n{}", scenario.stage.dump().await)]
        }
    }
}

struct Scenario<'a> {
    step: &'a Step,
    fault: Fault,
    stage: Stage,
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

impl Scenario<'_> {
    async fn play(&self) -> Vec<String> {
        let Self { step, fault, stage } = self;
        for family in step.families() {
            let text = (step.contract)(family, &stage.downstream.url).text();
            stage.contract(family, &text).await;
        }
        stage.downstream.jobs().take(Duration::from_millis(200)).await;
        let mut roles = vec![stage.run(step.victim.others())];
        if step.of_unknowns {
            self.make_unknown().await;
        }
        let hold = Hold::of(step.held, stage).await;
        if step.victim == Victim::Maintain {
            // From here on the downstream knows, and only role maintain asks.
            stage.downstream.lookups().as_usual().await;
        }
        let mut victims = self.victims().await;
        if !step.of_unknowns {
            self.submit().await;
        }
        hold.reached(step.stands()).await;
        for victim in &mut victims {
            match fault.ill {
                Ill::Killed => victim.kill(),
                Ill::Paused => victim.signal("STOP"),
                Ill::Cut => {}
            }
        }
        hold.end(*fault).await;
        roles.extend(step.victim.role().map(|role| stage.run(role)));
        if fault.ill == Ill::Paused {
            self.pause().await;
            victims.iter().for_each(|victim| victim.signal("CONT"));
        }
        self.end(victims, roles).await
    }

    async fn victims(&self) -> Vec<Process> {
        let Self { step, stage, .. } = self;
        let each = |family| stage.process("worker", Some(family));
        match (step.victim, step.victim.role()) {
            (Victim::Workers, _) => step.families().into_iter().map(each).collect(),
            (_, Some(role)) => vec![stage.process(role, None)],
            (Victim::Person(finding), None) => self.resolve(finding).await,
            (_, None) => unreachable!("only a person has no role"),
        }
    }

    /// Submits all, those with a first attempt that gets no answer after the others.
    async fn submit(&self) {
        let Self { step, stage, .. } = self;
        let mut tried = 0;
        for (before, spoilt) in [
            (Before::Nothing, None),
            (Before::Made, Some("drop_response")),
            (Before::NotMade, Some("drop_before_effect")),
        ] {
            let cases: Vec<_> =
                step.cases.iter().copied().filter(|case| case.before == before).collect();
            if cases.is_empty() {
                continue;
            }
            if let Some(how) = spoilt {
                let rule = json!({"name": "before", "on": "tickets", how: true});
                stage.downstream.control(rule).await;
            }
            stage.submit(&cases).await;
            if spoilt.is_some() {
                tried += u64::try_from(cases.len()).unwrap();
                stage.downstream.tickets().arrived(tried, 60).await;
                stage.downstream.control(json!({"remove": "before"})).await;
            }
        }
    }

    /// First attempts without an answer, and nobody who can be asked.
    async fn make_unknown(&self) {
        let Self { step, stage, .. } = self;
        stage.downstream.lookups().always(500).await;
        self.submit().await;
        let unknown = "select count(*) from oncebox.operations where status = 'unknown'";
        stage.until("all are unknown", step.cases.len(), unknown).await;
        if let Victim::Person(Finding::NotApplied) = step.victim {
            let going_on = "select count(*) from oncebox.operations where attempts_over_at > clock_timestamp()";
            stage.until("their attempts are over", 0, going_on).await;
        }
    }

    /// Past the lease, until others have taken over.
    async fn pause(&self) {
        tokio::time::sleep(PAUSE).await;
        match self.step.victim {
            Victim::Workers | Victim::Worker => self.stage.taken_over().await,
            Victim::Relay => {
                let left = "select count(*) from oncebox.outbox";
                self.stage.until("another relay has published", 0, left).await;
            }
            Victim::Maintain | Victim::Person(_) => {}
        }
    }

    /// Everything settles; then what was said is held against what was done.
    async fn end(&self, mut victims: Vec<Process>, roles: Vec<Running>) -> Vec<String> {
        let Self { step, fault, stage } = self;
        let mut wrong = Vec::new();
        if let Victim::Person(finding) = step.victim {
            wrong.extend(self.ask_again(finding, &mut victims).await);
        }
        wrong.extend(self.endings().await);
        if fault.ill == Ill::Killed {
            victims.clear();
        }
        wrong.extend(stage.stop(&step.families(), victims, roles).await);
        let allowed = |case| step.endings(*fault, case);
        wrong.extend(check::records(stage, &step.cases, allowed).await);
        wrong
    }

    /// Waits until every operation has ended as it may.
    async fn endings(&self) -> Vec<String> {
        let began = Instant::now();
        loop {
            let statuses = self.stage.statuses().await;
            let left = self.step.cases.iter().filter_map(|case| {
                let name = case.step();
                let (step, status) = statuses.iter().find(|(step, _)| *step == name)?;
                let ended = self.step.endings(self.fault, *case).contains(&status.as_str());
                (!ended).then(|| format!("{step}: stays {status}"))
            });
            let left: Vec<String> = left.collect();
            if left.is_empty() || began.elapsed() > ENDED_WITHIN {
                return left;
            }
            if self.step.victim == Victim::Maintain {
                self.stage.a_minute_passes().await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A person's command for each operation.
    async fn resolve(&self, finding: Finding) -> Vec<Process> {
        let Self { step, stage, .. } = self;
        let mut commands = Vec::new();
        for case in &step.cases {
            let key = format!("acme:test:run:{}", case.step());
            let receipt = check::receipt(&stage.world, *case).await.unwrap_or_default();
            let found: &[&str] = match finding {
                Finding::Applied => &["--applied", &receipt],
                Finding::NotApplied => &["--not-applied"],
            };
            let who = ["--by", "ann", "--reason", "looked it up"];
            let arguments = [&["ops", "resolve", &key], found, &who].concat();
            commands.push(Process::start(stage.command(&arguments)));
        }
        commands
    }

    /// The commands of the fault end and say no more than is true; then the person says it again.
    async fn ask_again(&self, finding: Finding, victims: &mut Vec<Process>) -> Vec<String> {
        let mut wrong = Vec::new();
        let confirmed = self.fault == Fault { ill: Ill::Paused, done: true };
        for victim in victims.iter_mut().filter(|_| self.fault.ill != Ill::Killed) {
            let code = ended(victim).await;
            if (code == Some(0)) != confirmed {
                wrong.push(format!("resolve ended with {code:?}"));
            }
        }
        victims.clear();
        for mut again in self.resolve(finding).await {
            // 1: the record says so already.
            let (code, wanted) = (ended(&mut again).await, i32::from(self.fault.done));
            if code != Some(wanted) {
                wrong.push(format!("resolved again, it ended with {code:?}"));
            }
        }
        wrong
    }
}
