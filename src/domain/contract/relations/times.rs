//! Spans of time and counts.

use std::time::Duration;

use crate::domain::contract::{Contract, duration_text};

use super::Found;

pub(super) fn check(contract: &Contract, margin: Duration, found: &mut Found) {
    retry(contract, found);
    lease(contract, margin, found);
    window(contract, margin, found);
    polling(contract, found);
    let concurrency = contract.concurrency;
    found.when(concurrency.process == 0, &["concurrency", "process"], "must be at least 1");
    found.when(concurrency.total == Some(0), &["concurrency", "total"], "must be at least 1");
}

fn retry(contract: &Contract, found: &mut Found) {
    let retry = &contract.retry;
    let mut bad = |broken, field, message| found.when(broken, &["retry", field], message);
    bad(retry.initial.is_zero(), "initial", "must be longer than nothing");
    bad(retry.initial > retry.max, "max", "must be at least retry.initial");
    bad(retry.max > retry.give_up, "give_up", "must be at least retry.max");
    bad(retry.multiplier < 1.0, "multiplier", "must be at least 1: waits never grow shorter");
    bad(!(0.0..=1.0).contains(&retry.jitter), "jitter", "must be from 0 to 1");
    bad(retry.attempts == 0, "attempts", "must be at least 1");
}

/// A claim must outlast its effect, or a second owner starts while the first still waits.
fn lease(contract: &Contract, margin: Duration, found: &mut Found) {
    let usable = contract.lease.saturating_sub(margin);
    found.when(
        usable.is_zero(),
        &["lease"],
        format!("must be longer than the margin of {}", duration_text(margin)),
    );
    let Some(http) = contract.http() else { return };
    let place = ["downstream", "http", "timeout"];
    found.when(http.timeout.is_zero(), &place, "must be longer than nothing");
    found.when(
        http.timeout >= usable && !usable.is_zero(),
        &place,
        format!(
            "must be shorter than the lease of {} less the margin of {}",
            duration_text(contract.lease),
            duration_text(margin)
        ),
    );
}

/// A window that closes before one attempt has ended allows no second one.
fn window(contract: &Contract, margin: Duration, found: &mut Found) {
    let Some(downstream) = &contract.downstream else { return };
    let Some(idempotency) = &downstream.idempotency else { return };
    let attempt = downstream.http.as_ref().map_or(Duration::ZERO, |http| http.timeout);
    found.when(
        idempotency.window <= attempt.saturating_add(margin),
        &["downstream", "idempotency", "window"],
        format!(
            "must be longer than the time-out and the margin together ({}), or no attempt could ever be repeated inside it",
            duration_text(attempt.saturating_add(margin))
        ),
    );
}

fn polling(contract: &Contract, found: &mut Found) {
    let Some(poll) = contract.downstream.as_ref().and_then(|d| d.poll.as_ref()) else { return };
    found.when(
        poll.every.is_zero(),
        &["downstream", "poll", "every"],
        "must be longer than nothing",
    );
    found.when(
        poll.give_up < poll.every,
        &["downstream", "poll", "give_up"],
        "must be at least poll.every",
    );
}
