//! The word to stop, as every role and loop hears it: from a channel that turns true, or whose sender
//! is gone. Nobody could give the word any more then, and a loop that waited for it would spin.

use tokio::sync::watch;

/// Whether the word was given.
pub(crate) fn is_asked(shutdown: &watch::Receiver<bool>) -> bool {
    *shutdown.borrow() || shutdown.has_changed().is_err()
}

/// Waits for the word. Safe to drop and call again.
pub(crate) async fn asked(shutdown: &mut watch::Receiver<bool>) {
    // An error is a sender that is gone, which is the word as well.
    drop(shutdown.wait_for(|stop| *stop).await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sender_that_is_gone_gives_the_word() {
        let (sender, mut shutdown) = watch::channel(false);
        assert!(!is_asked(&shutdown));
        sender.send_replace(true);
        assert!(is_asked(&shutdown));
        sender.send_replace(false);
        assert!(!is_asked(&shutdown));
        drop(sender);
        asked(&mut shutdown).await;
        assert!(is_asked(&shutdown));
    }
}
