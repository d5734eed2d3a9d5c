//! The three downstreams, as contracts, and the operations of one scenario.

use crate::support::contracts::{ContractText, blind, deduplicating, looked_up};

/// What can be found out about an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Deduplicating,
    LookedUp,
    Blind,
}

/// What was done, before the step, by a first attempt without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// There was none.
    Nothing,
    /// It made the effect.
    Made,
    /// It did not.
    NotMade,
}

/// One operation of a scenario.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) family: Family,
    pub(super) before: Before,
    /// Tells apart what is alike; 0 for the only one.
    pub(super) number: usize,
}

/// Waits that a test can wait for: a lease that outlasts a busy moment of the machine, and what
/// follows from it.
const QUICK: &str = "lease: 4s\nretry: {initial: 50ms, max: 300ms, jitter: 0}";

/// As [`QUICK`], and more attempts than a test can spoil.
const PATIENT: &str = "lease: 4s\nretry: {initial: 50ms, max: 300ms, jitter: 0, attempts: 500}";

/// As [`QUICK`], and the first attempt is the last.
const ONCE: &str = "lease: 4s\nretry: {initial: 50ms, max: 300ms, jitter: 0, attempts: 1}";

impl Family {
    pub(super) const ALL: [Self; 3] = [Self::Deduplicating, Self::LookedUp, Self::Blind];

    pub(super) fn tool(self) -> &'static str {
        match self {
            Self::Deduplicating => "tickets.keyed",
            Self::LookedUp => "tickets.found",
            Self::Blind => "tickets.blind",
        }
    }

    pub(super) fn contract(self, url: &str) -> ContractText {
        let text = match self {
            Self::Deduplicating => deduplicating(url),
            Self::LookedUp => looked_up(url),
            Self::Blind => blind(url),
        };
        text.timeout("2s")
    }

    /// With retries.
    pub(super) fn usual(self, url: &str) -> ContractText {
        self.contract(url).more(QUICK)
    }

    /// Without a second attempt.
    pub(super) fn once(self, url: &str) -> ContractText {
        self.contract(url).more(ONCE)
    }

    /// Asks a policy before it sends, so that its mark is a write of its own.
    pub(super) fn asking(self, url: &str) -> ContractText {
        self.usual(url).policy()
    }

    /// Never gives up.
    pub(super) fn patient(self, url: &str) -> ContractText {
        self.contract(url).more(PATIENT)
    }

    pub(super) fn patient_jobs(self, url: &str) -> ContractText {
        self.patient(url).jobs("300ms", "1h")
    }

    pub(super) fn patient_asking(self, url: &str) -> ContractText {
        self.patient(url).policy()
    }

    /// Submits a provider's job.
    pub(super) fn jobs(self, url: &str) -> ContractText {
        self.usual(url).jobs("300ms", "1h")
    }
}

impl Case {
    pub(super) const fn fresh(family: Family) -> Self {
        Self { family, before: Before::Nothing, number: 0 }
    }

    /// The step of its operation key, and its subject.
    pub(super) fn step(self) -> String {
        let family = match self.family {
            Family::Deduplicating => "deduplicating",
            Family::LookedUp => "looked-up",
            Family::Blind => "blind",
        };
        let before = match self.before {
            Before::Nothing => "",
            Before::Made => "-made",
            Before::NotMade => "-not-made",
        };
        let number = if self.number == 0 { String::new() } else { format!("-{}", self.number) };
        format!("{family}{before}{number}")
    }
}
