//! What is shown while the demo runs: a spinner where there is a terminal, a line when a step is done.

use std::io::Write as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Shows steps in order.
pub(crate) struct Steps;

/// A step that runs.
pub(crate) struct Step {
    what: String,
    begun: Instant,
    spinner: ProgressBar,
}

impl Steps {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn begin(&self, what: &str) -> Step {
        // Hidden by itself where stderr is no terminal.
        let mut spinner = ProgressBar::new_spinner().with_message(what.to_owned());
        if let Ok(style) = ProgressStyle::with_template("  {spinner} {wide_msg}") {
            spinner = spinner.with_style(style);
        }
        spinner.enable_steady_tick(Duration::from_millis(100));
        Step { what: what.to_owned(), begun: Instant::now(), spinner }
    }

    pub(crate) fn note(&self, what: &str) {
        line(&format!("  - {what}"));
    }
}

impl Step {
    /// Says how far it is, on a terminal only.
    pub(crate) fn at(&self, progress: &str) {
        self.spinner.set_message(format!("{}: {progress}", self.what));
    }

    pub(crate) fn done(self, more: &str) {
        self.spinner.finish_and_clear();
        let separator = if more.is_empty() { "" } else { ": " };
        line(&format!(
            "  ✓ {}{separator}{more} ({:.1} s)",
            self.what,
            self.begun.elapsed().as_secs_f32()
        ));
    }
}

fn line(text: &str) {
    // A reader that has gone does not end the demo: its exit code is still wanted.
    drop(writeln!(std::io::stdout(), "{text}"));
}
