//! What happens to a process in the middle of an exchange.

use std::fmt;

/// A fault: what becomes of the process, and whether what it had asked for is done all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) ill: Ill,
    pub(super) done: bool,
}

/// What becomes of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ill {
    /// SIGKILL.
    Killed,
    /// SIGSTOP; SIGCONT when its lease has passed to others, before the stall margin has.
    Paused,
    /// It lives on, and never sees the answer: its connection ends.
    Cut,
}

impl Fault {
    pub(super) const ALL: [Self; 6] = [
        Self { ill: Ill::Killed, done: false },
        Self { ill: Ill::Killed, done: true },
        Self { ill: Ill::Paused, done: false },
        Self { ill: Ill::Paused, done: true },
        Self { ill: Ill::Cut, done: false },
        Self { ill: Ill::Cut, done: true },
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ill = match self.ill {
            Ill::Killed => "killed",
            Ill::Paused => "paused",
            Ill::Cut => "answer dropped",
        };
        write!(f, "{ill}, request {}", if self.done { "done" } else { "not done" })
    }
}
