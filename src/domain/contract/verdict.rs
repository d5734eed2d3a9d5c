//! The decision at the end of a design review: automate, automate with approval, or keep manual.
//!
//! It rests on what a lost answer leads to and on who finds out, never on how well a model behaves.
//! [`Facts`] are what the decision looks at and nothing else; [`Facts::judge`] is the whole rule, for
//! the review and for whoever decides which tools are served.

#[cfg(test)]
mod tests;

use super::{AbsentRule, Contract, EffectClass, Recoverability};

/// How far a tool may be left to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Its requests need nobody.
    Automate,
    /// A person should approve requests before they are sent.
    WithApproval,
    /// Keep it manual until reconciliation exists: every request should wait for an approval. Where
    /// it must, see [`Judgement::is_unserved`].
    Manual,
}

/// Which requests the contract makes wait for an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Coverage {
    /// None.
    None,
    /// Those with some values.
    Some,
    /// Every one.
    Every,
}

/// What can be looked up about an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LookUp {
    /// Nothing.
    None,
    /// That it is there; "absent" may be a cache's opinion, so nothing follows from it.
    Presence,
    /// That it is there, and that it is not; after "absent" an operator decides.
    AbsentToOperator,
    /// That it is there, and that it is not; after "absent" it is sent again.
    AbsentResends,
}

/// What the verdict looks at. A tool written in Rust that looks up effects in its own code says so in
/// its contract, in a `lookup` section without `http`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The kind of effect.
    pub class: EffectClass,
    /// A late repetition of a natural idempotent write overwrites nothing newer, or harmlessly.
    pub overwrite_safe: bool,
    /// The downstream recognises our key.
    pub deduplicates: bool,
    /// What can be looked up.
    pub look_up: LookUp,
    /// An answer can carry the effect's reference.
    pub receipt: bool,
    /// Which requests wait for an approval.
    pub approval: Coverage,
    /// Somebody is named whom an unknown outcome goes to.
    pub owner: bool,
}

/// A reason, for or against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// Nothing is changed.
    ChangesNothing,
    /// Effect and settlement are one commit.
    OneCommit,
    /// A repetition ends in the same state.
    SafeToRepeat,
    /// The downstream recognises a repeated key.
    Deduplicates,
    /// A look-up tells what a lost answer did not.
    LooksUp,
    /// What a look-up does not find goes to an operator.
    AbsentToOperator,
    /// "Absent" proves nothing.
    AbsenceUnproved,
    /// A second send rests on a look-up alone, and the effect cannot be undone.
    ResendsIrreversible,
    /// Nothing tells what a lost answer did.
    NothingFindsOut,
    /// And a repetition would add again.
    AddsAgain,
    /// And the effect cannot be undone.
    CannotBeUndone,
    /// No answer proves the effect.
    NoReceipt,
    /// Nobody is named whom an unknown outcome goes to.
    NobodyReconciles,
    /// The contract itself asks for approvals.
    ContractAsks,
}

/// The verdict and what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The verdict.
    pub verdict: Verdict,
    /// Why; never empty.
    pub reasons: Vec<Why>,
    /// Which requests the contract makes wait for an approval.
    pub approval: Coverage,
    /// Which would have to.
    pub needed: Coverage,
}

impl Judgement {
    /// Whether the contract asks for the approvals that the verdict needs.
    #[must_use]
    pub fn approval_suffices(&self) -> bool {
        self.approval >= self.needed
    }

    /// Whether no worker may serve the tool: a repetition would add again or could not be undone,
    /// nothing finds out what a lost answer did, and some requests would be sent without a person's
    /// approval. Every other reason to keep a tool manual is advice.
    #[must_use]
    pub fn is_unserved(&self) -> bool {
        self.approval != Coverage::Every && self.worst().is_some()
    }

    /// What a repetition of a tool would do that can neither be told nor prevented.
    fn worst(&self) -> Option<Why> {
        [Why::AddsAgain, Why::CannotBeUndone].into_iter().find(|why| self.reasons.contains(why))
    }
}

impl Contract {
    /// Whether to automate the tool, and why.
    #[must_use]
    pub fn verdict(&self) -> Judgement {
        Facts::of(self).judge()
    }

    /// Why no worker may serve the tool, in a line that says what to do; `None`: it may be served.
    #[must_use]
    pub fn kept_manual(&self) -> Option<String> {
        let judgement = self.verdict();
        let why = judgement.worst().filter(|_| judgement.is_unserved())?;
        Some(format!(
            "it is kept manual, since {}, {}, and not every request waits for an approval; add approval without `when`, downstream.idempotency or downstream.lookup",
            why.told().1,
            Why::NothingFindsOut.told().1
        ))
    }
}

impl Facts {
    /// What a contract says.
    #[must_use]
    pub fn of(contract: &Contract) -> Self {
        let downstream = contract.downstream.as_ref();
        let look_up = downstream.and_then(|d| d.lookup.as_ref());
        Self {
            class: contract.effect_class,
            overwrite_safe: contract.effect_class == EffectClass::NaturalIdempotent
                && contract.recoverability() == Recoverability::ResendAlways,
            deduplicates: downstream.is_some_and(|d| d.idempotency.is_some()),
            look_up: look_up
                .map_or(LookUp::None, |found| LookUp::of(found.authoritative, found.when_absent)),
            receipt: gives_receipt(contract),
            approval: match &contract.approval {
                None => Coverage::None,
                Some(approval) if approval.when.is_empty() => Coverage::Every,
                Some(_) => Coverage::Some,
            },
            owner: contract.owner.is_some(),
        }
    }

    /// The verdict.
    #[must_use]
    pub fn judge(self) -> Judgement {
        let (mut verdict, mut reasons) = self.after_a_lost_answer();
        let settles_elsewhere = !self.can_end_unknown();
        if !self.receipt && !settles_elsewhere {
            reasons.push(Why::NoReceipt);
            let by_look_up = self.look_up != LookUp::None;
            verdict = verdict.max(if by_look_up { Verdict::WithApproval } else { Verdict::Manual });
        }
        if !self.owner && !settles_elsewhere {
            reasons.push(Why::NobodyReconciles);
            // Where nothing finds out but a person, and there is none, no reconciliation exists.
            let nothing = reasons.contains(&Why::NothingFindsOut);
            verdict = verdict.max(if nothing { Verdict::Manual } else { Verdict::WithApproval });
        }
        let needed = match verdict {
            Verdict::Automate => Coverage::None,
            Verdict::WithApproval | Verdict::Manual => Coverage::Every,
        };
        if self.approval != Coverage::None {
            reasons.push(Why::ContractAsks);
            verdict = verdict.max(Verdict::WithApproval);
        }
        Judgement { verdict, reasons, approval: self.approval, needed }
    }

    /// Whether an operation can end with nobody here able to tell what it did.
    fn can_end_unknown(self) -> bool {
        match self.class {
            EffectClass::Read | EffectClass::Transactional => false,
            EffectClass::NaturalIdempotent
            | EffectClass::KeyBased
            | EffectClass::Append
            | EffectClass::Irreversible => true,
        }
    }

    /// The table: what recovery can do after an answer was lost, by the kind of effect.
    fn after_a_lost_answer(self) -> (Verdict, Vec<Why>) {
        use EffectClass as C;
        use Verdict::{Automate, Manual, WithApproval};
        if self.class == C::NaturalIdempotent && self.overwrite_safe {
            return (Automate, vec![Why::SafeToRepeat]);
        }
        match (self.class, self.deduplicates, self.look_up) {
            (C::Read, _, _) => (Automate, vec![Why::ChangesNothing]),
            (C::Transactional, _, _) => (Automate, vec![Why::OneCommit]),
            (C::NaturalIdempotent | C::KeyBased | C::Append | C::Irreversible, true, _) => {
                (Automate, vec![Why::Deduplicates])
            }
            (C::Irreversible, false, LookUp::AbsentResends) => {
                (WithApproval, vec![Why::LooksUp, Why::ResendsIrreversible])
            }
            (C::NaturalIdempotent | C::KeyBased | C::Append, false, LookUp::AbsentResends) => {
                (Automate, vec![Why::LooksUp])
            }
            (
                C::NaturalIdempotent | C::KeyBased | C::Append | C::Irreversible,
                false,
                LookUp::AbsentToOperator,
            ) => (Automate, vec![Why::LooksUp, Why::AbsentToOperator]),
            (
                C::NaturalIdempotent | C::KeyBased | C::Append | C::Irreversible,
                false,
                LookUp::Presence,
            ) => (WithApproval, vec![Why::LooksUp, Why::AbsenceUnproved]),
            (C::NaturalIdempotent | C::KeyBased, false, LookUp::None) => {
                (WithApproval, vec![Why::NothingFindsOut])
            }
            (C::Append, false, LookUp::None) => {
                (Manual, vec![Why::NothingFindsOut, Why::AddsAgain])
            }
            (C::Irreversible, false, LookUp::None) => {
                (Manual, vec![Why::NothingFindsOut, Why::CannotBeUndone])
            }
        }
    }
}

/// Whether some answer can carry the effect's reference. A tool written in Rust has to give one by
/// its type; a provider's job id is one.
fn gives_receipt(contract: &Contract) -> bool {
    let downstream = contract.downstream.as_ref();
    let by_answer = contract.http().is_none_or(|http| http.receipt.is_some());
    let by_poll = downstream.and_then(|d| d.poll.as_ref()).is_some()
        && contract.http().is_some_and(|http| http.job.is_some());
    by_answer || by_poll
}

impl LookUp {
    /// What a look-up section says. An absence that is not authoritative never leads to a second
    /// send, whatever the section says of it.
    #[must_use]
    pub fn of(authoritative: bool, absent: AbsentRule) -> Self {
        match (authoritative, absent) {
            (false, AbsentRule::Resend | AbsentRule::Operator) => Self::Presence,
            (true, AbsentRule::Operator) => Self::AbsentToOperator,
            (true, AbsentRule::Resend) => Self::AbsentResends,
        }
    }
}

impl Verdict {
    /// Every verdict, the freest first.
    pub const ALL: [Self; 3] = [Self::Automate, Self::WithApproval, Self::Manual];

    /// The stable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Automate => "automate",
            Self::WithApproval => "automate_with_approval",
            Self::Manual => "keep_manual",
        }
    }

    /// The words for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Automate => "automate",
            Self::WithApproval => "automate with approval",
            Self::Manual => "keep manual",
        }
    }
}

impl Coverage {
    /// The stable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Some => "some",
            Self::Every => "every",
        }
    }
}

impl Why {
    /// The stable code, and the reason in a sentence.
    #[must_use]
    pub fn told(self) -> (&'static str, &'static str) {
        match self {
            Self::ChangesNothing => {
                ("changes_nothing", "a repetition reads again and changes nothing")
            }
            Self::OneCommit => ("one_commit", "the effect commits with the record or not at all"),
            Self::SafeToRepeat => (
                "safe_to_repeat",
                "a repetition ends in the same state and overwrites nothing newer, or harmlessly",
            ),
            Self::Deduplicates => (
                "deduplicates",
                "the downstream recognises a repeated key, so a lost answer is asked for again",
            ),
            Self::LooksUp => {
                ("looks_up", "a lost answer is looked up before anything else is done")
            }
            Self::AbsentToOperator => (
                "absent_to_operator",
                "what the look-up does not find is not sent again by itself: a person decides",
            ),
            Self::AbsenceUnproved => (
                "absence_unproved",
                "the look-up is not authoritative: an effect that it does not find may exist all the same",
            ),
            Self::ResendsIrreversible => (
                "resends_irreversible",
                "after an absence it is sent again, and a second effect could not be undone",
            ),
            Self::NothingFindsOut => (
                "nothing_finds_out",
                "the downstream neither deduplicates nor can be asked: a lost answer ends unknown",
            ),
            Self::AddsAgain => ("adds_again", "every repetition would add again"),
            Self::CannotBeUndone => {
                ("cannot_be_undone", "the effect cannot be undone, or others see it at once")
            }
            Self::NoReceipt => (
                "no_receipt",
                "no answer carries the effect's reference, so that no answer proves the effect",
            ),
            Self::NobodyReconciles => {
                ("nobody_reconciles", "nobody is named whom an unknown outcome goes to (owner)")
            }
            Self::ContractAsks => {
                ("contract_asks", "the contract itself makes requests wait for an approval")
            }
        }
    }
}
