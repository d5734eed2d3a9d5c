//! Chance, for waits that must not fall together. Decisions get it passed in.

use uuid::Uuid;

/// A sample from 0 to 1.
#[must_use]
pub(crate) fn sample() -> f64 {
    let random = Uuid::new_v4().as_u128() & 0xFFFF_FFFF;
    f64::from(u32::try_from(random).unwrap_or_default()) / f64::from(u32::MAX)
}
