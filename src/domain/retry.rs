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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::rule::Resend;

    fn rule(jitter: f64) -> AttemptRule {
        AttemptRule {
            resend: Resend::Always,
            initial: Duration::from_secs(1),
            max: Duration::from_secs(300),
            multiplier: 2.0,
            jitter,
            attempts: 12,
            give_up: Duration::from_secs(1),
            lease: Duration::from_secs(30),
            timeout: Duration::from_secs(10),
            margin: Duration::from_secs(5),
        }
    }

    #[test]
    fn waits_double_up_to_the_maximum() {
        let waits: Vec<_> = (1..12).map(|tries| delay(&rule(0.0), tries, 0.9).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(delay(&rule(0.0), u32::MAX, 0.0).as_secs(), 300);
    }

    #[test]
    fn jitter_spreads_a_wait_round_its_middle() {
        assert_eq!(delay(&rule(0.5), 3, 0.0).as_secs(), 2);
        assert_eq!(delay(&rule(0.5), 3, 0.5).as_secs(), 4);
        assert_eq!(delay(&rule(0.5), 3, 1.0).as_secs(), 6);
    }
}
