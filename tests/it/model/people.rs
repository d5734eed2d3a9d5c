//! Role maintain and people: what is done about a record without a claim.

use std::sync::Arc;

use oncebox::domain::attempt::{Effect, Unconfirmed};
use oncebox::domain::evidence::Evidence;
use oncebox::domain::operation::Operation;
use oncebox::domain::permission::ApprovalState;
use oncebox::domain::reason::Reason;
use oncebox::domain::recovery;
use oncebox::domain::settle::Settle;
use oncebox::domain::verbs::{self, Answer, Person};

use super::downstream::effect;
use super::shell::Shell;
use super::world::{Inquiry, Sight, Told, Verb, World, ticks};

/// How long role maintain leaves a record alone that it asks about.
const ASKING_AHEAD: u32 = 6;

impl Shell {
    /// Role maintain takes an unknown record and asks: `reconcile`.
    pub(super) fn inquire(&self, world: &mut World, number: usize, sight: Sight) -> Option<()> {
        let record = Arc::clone(&world.rows[number].record);
        let due = record.next_lookup_at.is_some_and(|at| at <= world.now);
        if !due || world.inquiry.is_some() {
            return None;
        }
        if sight == Sight::Blank {
            world.left.blanks = world.left.blanks.checked_sub(1)?;
        }
        let rule = &self.setup.rule;
        let evidence = if let Some(effect) = self.unconfirmed(&record) {
            match sight {
                Sight::Truth => Evidence::Found(effect),
                Sight::Blank => Evidence::Unconfirmed(effect, Unconfirmed::Unreachable),
                Sight::NotSeen => return None,
            }
        } else if rule.poll.is_some() && record.job.is_some() {
            self.poll(world, number, sight)?
        } else if rule.can_look_up(&record) {
            self.look_up(world, number, sight)?
        } else {
            self.write(world, number, &recovery::not_askable(&record));
            return (sight == Sight::Truth).then_some(());
        };
        let taken = Operation {
            next_lookup_at: Some(world.now.after(ticks(ASKING_AHEAD))),
            ..(*record).clone()
        };
        world.rows[number].record = Arc::new(taken);
        world.inquiry = Some(Inquiry { row: number, asked_at: world.now, evidence });
        Some(())
    }

    fn unconfirmed(&self, record: &Operation) -> Option<Effect> {
        (record.reason == Some(Reason::PostconditionUnreachable)).then_some(())?;
        record.effect_reference.as_deref().map(effect)
    }

    /// Role maintain writes what it found out.
    pub(super) fn conclude(&self, world: &mut World) -> Option<()> {
        let Inquiry { row, asked_at, evidence } = world.inquiry.take()?;
        let record = Arc::clone(&world.rows[row].record);
        let settled = self.protocol.reconcile(&record, &evidence, asked_at, world.now);
        if let Settle::Write(step) = settled {
            self.write(world, row, &step);
        }
        Some(())
    }

    /// Permission is taken away: a grant is revoked, an approval withdrawn.
    pub(super) fn revoke(&self, world: &mut World) -> Option<()> {
        world.left.revocations = world.left.revocations.checked_sub(1)?;
        if !self.setup.asks_approval {
            world.granted = false;
            return Some(());
        }
        let step = verbs::withdraw(&world.rows[0].record, &person()).ok()?;
        let given = matches!(world.approval, Some(ApprovalState::Approved { .. }));
        world.approval = Some(ApprovalState::Withdrawn);
        self.write(world, 0, &step);
        given.then_some(())
    }

    /// An operator's verb: `operator::ops`.
    pub(super) fn operate(&self, world: &mut World, number: usize, verb: Verb) -> Option<()> {
        let by = person();
        let (now, record) = (world.now, Arc::clone(&world.rows[number].record));
        let counted = !matches!(verb, Verb::Approve | Verb::Deny);
        world.left.verbs = world.left.verbs.checked_sub(u8::from(counted))?;
        let step = match verb {
            Verb::Retry => verbs::retry(&record, self.setup.rule.can_look_up(&record), now, &by),
            Verb::Reopen => self.protocol.reopen(&record, now, &by),
            Verb::Release => verbs::release(&record, now, &by),
            Verb::Resolve(told) => {
                let finding = told.finding(&world.rows[number], now)?;
                self.protocol.resolve(&record, &finding, now, &by)
            }
            Verb::Approve => verbs::answer(&record, Answer::Approve, now, &by),
            Verb::Deny => verbs::answer(&record, Answer::Deny, now, &by),
        };
        self.write(world, number, &step.ok()?);
        let nothing =
            !world.may_still_act(number) && world.rows[number].standing().next().is_none();
        let row = &mut world.rows[number];
        match verb {
            Verb::Reopen => {
                row.told = false;
                row.unproved.retain(|_| !nothing);
            }
            Verb::Resolve(Told::Compensated) => {
                row.effects.iter_mut().for_each(|e| e.undone = true)
            }
            Verb::Release => row.released = true,
            Verb::Approve => {
                world.approval = Some(ApprovalState::Approved { expires_at: now.after(ticks(3)) });
            }
            Verb::Deny => world.approval = Some(ApprovalState::Denied),
            Verb::Retry | Verb::Resolve(Told::Applied | Told::NotApplied) => {}
        }
        Some(())
    }
}

fn person() -> Person {
    Person { name: "ada".to_owned(), reason: "looked".to_owned() }
}
