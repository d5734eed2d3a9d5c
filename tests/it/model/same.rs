//! When two states are the same.
//!
//! A state's hash, which tells the checker whether it was here before, is taken over what any decision
//! can still depend on: times relative to now, tokens relative to the record's, and what is long past
//! is one moment. So the same situation a minute later is the same state, and the space is finite
//! without a last moment of the model.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use oncebox::domain::claim::Purpose;
use oncebox::domain::lifecycle::State;
use oncebox::domain::operation::{Timestamp, Token};
use oncebox::domain::permission::ApprovalState;

use super::world::{Attempt, Inquiry, JobFate, Request, Row, Stage, TICK, World};

/// Longer than every wait but a twin's, in ticks.
const FAR_AHEAD: i64 = 60;

// How long ago still matters, in ticks: from here on longer ago is the same.

/// Of a lease that ran out: time-out, stall margin, visibility and margin are counted from its end.
const LEASE_AGO: i64 = 6;

/// Of an effect, a request or an attempt's end: visibility and margin are counted from it.
const OVER_AGO: i64 = 3;

/// Of an attempt's end while somebody looks, whose question may be old itself.
const ASKED_AGO: i64 = 10;

/// Of an opening or an ending without proof: `give_up` is counted from it.
const OPENED_AGO: i64 = 3;

/// Of a job's acceptance: the poll's `give_up` is counted from it.
const ACCEPTED_AGO: i64 = 4;

/// Of a key's first use: the downstream's window is counted from it.
const WINDOW_AGO: i64 = 10;

/// A state's hash.
pub(super) fn hash_of(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
}

/// The moment, and the record's token, that everything is relative to.
struct Since {
    now: Timestamp,
    token: Token,
}

impl Since {
    /// `past` ticks ago and longer ago are the same, and so is what is far ahead: a twin's wait.
    fn time(&self, at: Timestamp, past: i64) -> i64 {
        let tick = i64::try_from(TICK.as_micros()).unwrap_or(i64::MAX);
        ((at.0 - self.now.0).div_euclid(tick)).clamp(-past, FAR_AHEAD)
    }

    fn maybe(&self, at: Option<Timestamp>, past: i64) -> Option<i64> {
        at.map(|at| self.time(at, past))
    }
}

impl Hash for World {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        for row in &self.rows {
            self.row(row, hasher);
        }
        // Who of twins is older, and what came about while another waited.
        for row in self.rows.iter().filter(|_| self.rows.len() > 1) {
            for other in &self.rows {
                let opened_at = other.record.opened_at;
                (row.record.opened_at > opened_at, row.record.updated_at > opened_at).hash(hasher);
            }
        }
        // Workers are alike: which of two remembers what makes no difference.
        let mut attempts: Vec<u64> = self.attempts.iter().map(|a| self.attempt(a)).collect();
        attempts.sort_unstable();
        attempts.hash(hasher);
        let mut wire: Vec<_> = self.wire.iter().map(|r| self.request(r)).collect();
        wire.sort_unstable();
        wire.hash(hasher);
        if let Some(Inquiry { row, asked_at, evidence }) = &self.inquiry {
            (row, self.since(*row).time(*asked_at, ASKED_AGO)).hash(hasher);
            format!("{evidence:?}").hash(hasher);
        }
        (self.granted, self.left, self.broken).hash(hasher);
        self.approval.map(|state| std::mem::discriminant(&state)).hash(hasher);
        if let Some(ApprovalState::Approved { expires_at }) = self.approval {
            self.since(0).time(expires_at, 1).hash(hasher);
        }
    }
}

impl World {
    fn since(&self, row: usize) -> Since {
        Since { now: self.now, token: self.rows[row].record.token }
    }

    fn row<H: Hasher>(&self, row: &Row, hasher: &mut H) {
        let record = &row.record;
        let since = Since { now: self.now, token: record.token };
        (record.state, record.reason).hash(hasher);
        if record.state.is_pending() {
            since.time(record.due_at, 0).hash(hasher);
        }
        since.maybe(record.lease.as_ref().map(|lease| lease.until), LEASE_AGO).hash(hasher);
        (record.attempts, record.lost_claims, record.deferrals, record.lookups).hash(hasher);
        // Whether it is set is all that decisions ask of the first send's time.
        record.first_sent_at.is_some().hash(hasher);
        record.downstream_key.as_ref().map(|key| &key.key).hash(hasher);
        let looks = self.attempts.iter().any(|attempt| attempt.purpose == Purpose::LookUp);
        let over_ago = if looks || self.inquiry.is_some() { ASKED_AGO } else { OVER_AGO };
        since.maybe(record.attempts_over_at, over_ago).hash(hasher);
        // The last change stands in for what the record does not say, and for nothing else.
        if record.first_sent_at.is_some() && record.attempts_over_at.is_none() {
            since.time(record.updated_at, over_ago + 3).hash(hasher);
        }
        since.maybe(record.next_lookup_at, 0).hash(hasher);
        if record.state == State::Unknown {
            since.maybe(record.unresolved_since, OPENED_AGO).hash(hasher);
        } else if !record.state.is_finished() {
            since.time(record.opened_at, OPENED_AGO).hash(hasher);
        }
        if let Some(job) = &record.job {
            (&job.id, since.time(job.accepted_at, ACCEPTED_AGO), job.alone).hash(hasher);
        }
        let twin = record.twin.as_ref();
        twin.map(|twin| (twin.held_behind.map(|o| o.as_u128()), twin.released)).hash(hasher);
        record.effect_reference.hash(hasher);
        for made in &row.effects {
            (&made.receipt, &made.key, since.time(made.at, OVER_AGO), made.undone).hash(hasher);
        }
        for job in &row.jobs {
            std::mem::discriminant(job).hash(hasher);
            if let JobFate::Runs { until } = job {
                since.time(*until, 0).hash(hasher);
            }
        }
        (row.seen_at.is_some(), row.told, row.released).hash(hasher);
        if self.forgets {
            since.maybe(row.seen_at, WINDOW_AGO).hash(hasher);
            since.maybe(record.key_first_used_at, WINDOW_AGO).hash(hasher);
        }
        let unproved = row.unproved.iter().map(|until| since.time(*until, OVER_AGO));
        unproved.collect::<BTreeSet<_>>().hash(hasher);
    }

    fn attempt(&self, attempt: &Attempt) -> u64 {
        let since = self.since(attempt.row);
        let mut hasher = DefaultHasher::new();
        let ticket = &attempt.ticket;
        (attempt.row, &attempt.key, attempt.purpose as u8).hash(&mut hasher);
        (ticket.token.0 - since.token.0, ticket.is_resend(), ticket.marked).hash(&mut hasher);
        if attempt.purpose == Purpose::LookUp {
            since.time(ticket.at, ASKED_AGO).hash(&mut hasher);
        }
        std::mem::discriminant(&attempt.stage).hash(&mut hasher);
        match &attempt.stage {
            Stage::Begun => {}
            Stage::Frozen { awake_by } => since.time(*awake_by, 0).hash(&mut hasher),
            Stage::Waiting(request) => self.request(request).hash(&mut hasher),
            Stage::Learned(report) => format!("{report:?}").hash(&mut hasher),
        }
        if attempt.stage == Stage::Begun {
            since.time(attempt.lease_ends, 0).hash(&mut hasher);
            since.maybe(attempt.send_before, 0).hash(&mut hasher);
        }
        hasher.finish()
    }

    fn request<'a>(&self, request: &'a Request) -> (usize, &'a str, i64) {
        (request.row, &request.key, self.since(request.row).time(request.until, 0))
    }
}
