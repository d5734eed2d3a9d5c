//! Progress of long work, on stderr, where that is a terminal.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line that shows how far the work is; nothing at all where nobody watches.
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// Work of a known or an unknown size; `what` names what is counted.
    pub(super) fn new(total: Option<u64>, what: &'static str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden()));
        }
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
        let form = match total {
            Some(_) => "{wide_bar} {pos}/{len} {msg} {per_sec}",
            None => "{spinner} {pos} {msg} {per_sec} {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(form) {
            bar.set_style(style);
        }
        bar.set_message(what);
        Self(bar)
    }

    /// So many more are done.
    pub(super) fn add(&self, done: u64) {
        self.0.inc(done);
    }

    /// Time has passed.
    pub(super) fn tick(&self) {
        self.0.tick();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
