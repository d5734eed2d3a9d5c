//! Effects on disk, before they are spoken of.
//!
//! One thread writes. What arrives while it waits for the disk goes out with the next flush, so
//! that a thousand effects a second do not cost a thousand flushes.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use tokio::sync::oneshot;

struct Entry {
    lines: String,
    written: oneshot::Sender<()>,
}

/// The writing end; without a file it remembers nothing and answers at once.
pub(crate) struct Journal(Option<Sender<Entry>>);

impl Journal {
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Opens `path` for appending and returns what an earlier run had written.
    ///
    /// # Errors
    /// When the file cannot be opened, read or cut.
    pub(crate) fn open(path: &Path) -> io::Result<(Self, String)> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut earlier = String::new();
        file.read_to_string(&mut earlier)?;
        // A line without its end was cut off by a kill. Its effect was never answered: it did not happen.
        earlier.truncate(earlier.rfind('\n').map_or(0, |end| end + 1));
        file.set_len(u64::try_from(earlier.len()).map_err(io::Error::other)?)?;
        file.seek(SeekFrom::End(0))?;
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || write_all(file, &receiver));
        Ok((Self(Some(sender)), earlier))
    }

    /// Puts `lines` into the queue; the answer comes when they, and all before them, are on disk.
    /// No lines: waits for what others have written.
    pub(crate) fn append(&self, lines: String) -> oneshot::Receiver<()> {
        let (written, done) = oneshot::channel();
        match &self.0 {
            // A send can only fail when the writer has ended, and then the process is ending.
            Some(sender) => drop(sender.send(Entry { lines, written })),
            None => written.send(()).unwrap_or(()),
        }
        done
    }
}

fn write_all(mut file: File, entries: &Receiver<Entry>) {
    while let Ok(first) = entries.recv() {
        let batch: Vec<Entry> = std::iter::once(first).chain(entries.try_iter()).collect();
        let text: String = batch.iter().map(|entry| entry.lines.as_str()).collect();
        if let Err(error) = file.write_all(text.as_bytes()).and_then(|()| file.sync_data()) {
            // A counter that may have lost an effect is worse than no service.
            drop(writeln!(io::stderr(), "ticket_service: the journal cannot be written: {error}"));
            std::process::exit(1);
        }
        for entry in batch {
            // Nobody waits when the request was given up; the effect stands all the same.
            entry.written.send(()).unwrap_or(());
        }
    }
}
