//! Walks along a trace and keeps what must hold from one transition to the next.

use crate::domain::attempt::NotSent;
use crate::domain::contract::Recoverability;
use crate::domain::lifecycle::State;
use crate::domain::operation::{Operation, Timestamp, Token};
use crate::domain::reason::Reason;

use super::flag::{Flag, Kind};
use super::{Allowed, Transition, lacks_proof};

/// Transitions that change nothing that is followed here.
const HARMLESS: [&str; 12] = [
    "authorized",
    "approved",
    "denied",
    "awaiting_approval",
    "held",
    "released",
    "acknowledged",
    "replayed",
    "in_flight",
    "polled",
    "expired",
    "published",
];

/// Why a wait was written that proves that its attempt did nothing.
const NOT_SENT: [NotSent; 9] = [
    NotSent::Unreachable,
    NotSent::LeaseTooShort,
    NotSent::ClaimLost,
    NotSent::Unbuildable,
    NotSent::SecretMissing,
    NotSent::Draining,
    NotSent::PolicyUnreachable,
    NotSent::PreconditionUnreachable,
    NotSent::Tool,
];

pub(super) fn flags(
    record: &Operation,
    trace: &[Transition],
    allowed: Option<Allowed>,
) -> Vec<Flag> {
    let mut walk = Walk { allowed, ..Walk::default() };
    for (at, transition) in trace.iter().enumerate() {
        walk.at = at;
        walk.step(transition);
    }
    walk.end(record, trace);
    walk.flags
}

#[derive(Default)]
struct Walk {
    allowed: Option<Allowed>,
    flags: Vec<Flag>,
    at: usize,
    proposed: bool,
    validated: bool,
    /// The claim that has not ended.
    claim: Option<Token>,
    last_claim: Option<Token>,
    highest: Option<Token>,
    /// Sends since it was opened.
    sends: u32,
    /// Sends of which nothing proved that they did nothing.
    open: u32,
    /// The same when the claim was taken.
    open_before: u32,
    /// The same, where the tool panicked: whether its request had left, only the next send tells.
    unsure: Option<u32>,
    first_sent: Option<Timestamp>,
    /// A look-up proved that the sends so far did nothing. Where a person is to decide about it, the
    /// record is still marked as perhaps sent.
    absent: bool,
    /// A receipt has come in.
    proved: bool,
    /// An operator put it back, or resolved it.
    by_hand: bool,
    applied: bool,
    ended: bool,
}

impl Walk {
    fn flag(&mut self, raised: bool, kind: Kind) {
        if raised {
            self.flags.push(Flag { kind, at: Some(self.at) });
        }
    }

    fn step(&mut self, row: &Transition) {
        self.highest = self.highest.max(Some(row.token));
        let began = self.proposed || row.event == "proposed";
        self.flag(!began && self.at == 0, Kind::NotProposed);
        match row.event.as_str() {
            "proposed" => self.opened(),
            "validated" => self.validated = true,
            "claimed" => self.claimed(row.token),
            "sent" => self.sent(row),
            "committed" if row.told("ambiguous").is_some() => {}
            "committed" => {
                let explained = self.sends > 0 || self.proved || self.by_hand;
                self.flag(!explained && !self.in_transaction(), Kind::EventsMissing);
                self.proved = true;
            }
            "accepted" => self.claim = None,
            "reconciled" => self.looked(row),
            "settled" if row.told("status").is_some() => self.ends(self.open_before),
            "settled" => self.applied(),
            "retry_scheduled" => self.waits(row),
            "rejected" => {
                self.flag(self.open_before > 0 && !self.applied, Kind::RejectedAfterSend);
                self.ends(self.open_before);
            }
            "parked" | "unknown" => {
                self.panicked(row.told("reason"));
                self.ends(self.open);
            }
            // A stale owner notes that it wrote nothing; only who takes over tells whose claim it was.
            "lease_lost" if row.detail.is_some() => self.claim = None,
            "lease_lost" => {}
            "resolved" => self.resolved(row.told("verb").unwrap_or_default()),
            "conflict" => self.flag(true, Kind::TwoReceipts),
            "refused" => self.flag(true, Kind::RefusedMove),
            other => self.flag(!HARMLESS.contains(&other), Kind::UnknownEvent),
        }
    }

    /// Submitted, or opened again: only what was never sent may be.
    fn opened(&mut self) {
        self.undone();
        self.proposed = true;
        self.ended = false;
        (self.sends, self.open, self.open_before, self.unsure) = (0, 0, 0, None);
    }

    fn claimed(&mut self, token: Token) {
        self.undone();
        self.flag(self.claim.is_some(), Kind::TwoOwners);
        self.flag(self.last_claim.is_some_and(|last| token <= last), Kind::TokenBack);
        (self.claim, self.last_claim) = (Some(token), Some(token));
        self.open_before = self.open;
        self.ended = false;
    }

    fn sent(&mut self, row: &Transition) {
        self.undone();
        self.flag(self.claim != Some(row.token), Kind::SentUnclaimed);
        self.flag(!self.validated, Kind::SentUnvalidated);
        self.flag(self.in_transaction(), Kind::SentInTransaction);
        // The record knew of an earlier send that the trace does not have.
        self.flag(row.says("again") && self.open == 0 && !self.absent, Kind::EventsMissing);
        if let Some(before) = self.unsure.take().filter(|_| !row.says("again")) {
            (self.open, self.open_before) = (before, before);
        }
        if self.open > 0 {
            self.sent_again(row.at);
        }
        self.absent = false;
        self.first_sent = self.first_sent.or(Some(row.at));
        self.sends = self.sends.saturating_add(1);
        self.open = self.open.saturating_add(1);
    }

    fn sent_again(&mut self, at: Timestamp) {
        let Some(allowed) = self.allowed else { return self.flag(true, Kind::ContractUnread) };
        match allowed.recoverability {
            Recoverability::ResendAlways => {}
            Recoverability::ResendWithin { window } => {
                let first = self.first_sent.unwrap_or(at);
                // After the window only a look-up that proved absence allows it, and that closes
                // the sends before.
                self.flag(at > first.after(window), Kind::WindowPassed);
            }
            Recoverability::None => self.flag(true, Kind::SecondSend),
            // Flagged for being marked at all.
            Recoverability::Transactional => {}
        }
    }

    /// What somebody found out: an absence that the contract takes for the truth closes what was
    /// open, and everything else is a receipt.
    fn looked(&mut self, row: &Transition) {
        if row.told("found") == Some("absent") {
            if self.allowed.is_none_or(|allowed| allowed.proves_absence) {
                (self.open, self.open_before, self.unsure) = (0, 0, None);
                self.absent = true;
            }
        } else {
            self.proved = true;
        }
    }

    fn applied(&mut self) {
        let external = (!self.in_transaction() && self.allowed.is_some()) || self.sends > 0;
        self.flag(external && !self.proved && !self.applied, Kind::NoReceipt);
        self.claim = None;
        (self.applied, self.ended) = (true, true);
    }

    fn waits(&mut self, row: &Transition) {
        self.panicked(row.told("why"));
        let why = row.told("why").unwrap_or_default();
        let denied = [Reason::NotNow.code(), Reason::DownstreamDenied.code()];
        let nothing_done =
            NOT_SENT.iter().any(|not_sent| not_sent.code() == why) || denied.contains(&why);
        let open = if nothing_done { self.open_before } else { self.open };
        self.ends(open);
        self.ended = false;
    }

    fn panicked(&mut self, why: Option<&str>) {
        if why == Some(Reason::ToolPanicked.code()) {
            self.unsure = Some(self.unsure.unwrap_or(self.open_before));
        }
    }

    /// The claim is over, and so many sends are still open.
    fn ends(&mut self, open: u32) {
        self.undone();
        self.claim = None;
        self.open = open;
        self.ended = true;
    }

    fn resolved(&mut self, verb: &str) {
        match verb {
            "applied" => {
                self.claim = None;
                (self.proved, self.by_hand, self.applied, self.ended) = (true, true, true, true);
            }
            "not_applied" => {
                (self.by_hand, self.unsure) = (true, None);
                self.ends(0);
            }
            "compensated" => {
                self.by_hand = true;
                self.ends(self.open);
            }
            "deny" => self.ends(self.open_before),
            // Where nobody owns it, it has ended; who owns it stops by a transition of its own.
            "withdraw" => self.ended |= self.claim.is_none(),
            "reopen" => self.opened(),
            // Put back as "may have been sent", and nobody knows when.
            "requeue" => {
                self.by_hand = true;
                self.open = self.open.saturating_add(1);
            }
            _ => {}
        }
    }

    fn undone(&mut self) {
        self.flag(self.applied, Kind::AppliedUndone);
    }

    fn in_transaction(&self) -> bool {
        self.allowed.is_some_and(|a| a.recoverability == Recoverability::Transactional)
    }

    /// Holds the trace against the record.
    fn end(&mut self, record: &Operation, trace: &[Transition]) {
        let named = |name: &str| trace.iter().any(|row| row.event == name);
        let told = |kind: Kind, flags: &[Flag]| flags.iter().any(|flag| flag.kind == kind);
        let applied = matches!(record.state, State::Applied | State::Expired);
        let missing = match record.state {
            State::Applied => !self.applied,
            State::Claimed | State::Sent => self.claim.is_none(),
            State::Rejected | State::FailedPermanent | State::Unknown | State::Parked => {
                !self.ended && !named("conflict")
            }
            State::Queued
            | State::Held
            | State::AwaitingApproval
            | State::Accepted
            | State::RetryScheduled
            | State::Expired => trace.is_empty(),
        };
        let weighed = self.by_hand && record.reason != Some(Reason::Conflict);
        if weighed {
            self.flags.retain(|flag| flag.kind != Kind::TwoReceipts);
        }
        let events = trace.iter().map(|row| row.event.as_str());
        let unproved = lacks_proof(record, events) && !told(Kind::NoReceipt, &self.flags);
        let silent = !record.state.is_pending() && !self.by_hand && !named("acknowledged");
        let closing = [
            (missing || record.attempts > self.sends, Kind::EventsMissing),
            (self.applied && !applied, Kind::AppliedUndone),
            (self.highest.is_some_and(|highest| highest > record.token), Kind::TokenBack),
            (unproved, Kind::NoReceipt),
            (record.response_dropped, Kind::ResponseDropped),
            (silent, Kind::NotAcknowledged),
        ];
        let raised = closing.into_iter().filter(|(raised, _)| *raised);
        self.flags.extend(raised.map(|(_, kind)| Flag { kind, at: None }));
    }
}
