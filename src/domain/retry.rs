//! How long until the next attempt.
//!
//! The only user of the crate `backoff` (ADR 0002). Jitter is sampled by the caller and passed in,
//! so that a decision gives the same answer twice.

use std::time::Duration;

use backoff::backoff::Backoff as _;

use super::rule::AttemptRule;

/// The wait before try number `tries + 1`, when `tries` were in vain. `jitter` is a sample from
/// 0 to 1.
#[must_use]
pub fn delay(rule: &AttemptRule, tries: u32, jitter: f64) -> Duration {
    let mut steps = backoff::ExponentialBackoff {
        current_interval: rule.initial,
        initial_interval: rule.initial,
        randomization_factor: 0.0,
        multiplier: rule.multiplier,
        max_interval: rule.max,
        max_elapsed_time: None,
        ..backoff::ExponentialBackoff::default()
    };
    let mut wait = rule.initial;
    // Far past every maximum that a contract can name; bounds the loop.
    for _ in 0..tries.clamp(1, 64) {
        wait = steps.next_backoff().unwrap_or(rule.max);
    }
    let factor = 1.0 + rule.jitter * (2.0 * jitter.clamp(0.0, 1.0) - 1.0);
    wait.min(rule.max).mul_f64(factor.max(0.0))
}

/// How long `tries` waits took together, jitter left out.
#[must_use]
pub fn waited(rule: &AttemptRule, tries: u32) -> Duration {
    let mut wait = rule.initial.min(rule.max);
    let mut total = Duration::ZERO;
    for done in 0..tries {
        let next = delay(&AttemptRule { jitter: 0.0, ..*rule }, done.saturating_add(1), 0.5);
        if done > 0 && next == wait {
            // Waits stopped growing: the rest are all alike.
            return total.saturating_add(wait.saturating_mul(tries.saturating_sub(done)));
        }
        wait = next;
        total = total.saturating_add(wait);
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::rule::Resend;

    fn rule(jitter: f64) -> AttemptRule {
        AttemptRule {
            resend: Resend::Always,
            lookup: None,
            poll: None,
            asks_before_send: false,
            twins: None,
            initial: Duration::from_secs(1),
            max: Duration::from_secs(300),
            multiplier: 2.0,
            jitter,
            attempts: 12,
            give_up: Duration::from_secs(1),
            lease: Duration::from_secs(30),
            timeout: Duration::from_secs(10),
            margin: Duration::from_secs(5),
            stall_margin: Duration::from_secs(300),
        }
    }

    #[test]
    fn waits_double_up_to_the_maximum() {
        let waits: Vec<_> = (1..12).map(|tries| delay(&rule(0.0), tries, 0.9).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(delay(&rule(0.0), u32::MAX, 0.0).as_secs(), 300);
    }

    #[test]
    fn waits_add_up() {
        let total = |tries| waited(&rule(0.5), tries).as_secs();
        assert_eq!([0, 1, 2, 9, 10, 12].map(total), [0, 1, 3, 511, 811, 1411]);
        assert_eq!(waited(&rule(0.5), u32::MAX).as_secs(), 511 + 300 * (u64::from(u32::MAX) - 9));
        let constant = AttemptRule { multiplier: 1.0, ..rule(0.0) };
        assert_eq!(waited(&constant, 1000).as_secs(), 1000);
    }

    #[test]
    fn jitter_spreads_a_wait_round_its_middle() {
        assert_eq!(delay(&rule(0.5), 3, 0.0).as_secs(), 2);
        assert_eq!(delay(&rule(0.5), 3, 0.5).as_secs(), 4);
        assert_eq!(delay(&rule(0.5), 3, 1.0).as_secs(), 6);
    }
}
