//! The input: lines from a file or stdin, read beside the transactions.

use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;

use tokio::sync::mpsc;

use super::Lines;
use crate::operator::failure::Failure;

/// Longest line: arguments of 1 MiB, metadata, and the rest, with every character escaped sixfold
/// at worst left to whoever writes such lines.
const MAX_LINE_BYTES: u64 = 2 * 1024 * 1024;

/// Lines read ahead of the transactions.
const AHEAD: usize = 1000;

/// One line of the input.
pub(super) struct Line {
    /// Its text without the line end, or why it cannot be one.
    pub(super) text: Result<Vec<u8>, &'static str>,
    /// How much of the input it was.
    pub(super) bytes: u64,
}

/// Begins to read; answers the size of a file, and its lines as they come.
pub(super) fn read(path: &Path) -> Result<(Option<u64>, Lines), Failure> {
    let (lines, read) = mpsc::channel(AHEAD);
    if path == Path::new("-") {
        std::thread::spawn(move || send(std::io::stdin().lock(), &lines));
        return Ok((None, read));
    }
    let unreadable = |error: std::io::Error| {
        let path = path.display();
        Failure::usage(format!(
            "{path} cannot be read: {error}; name a readable file, or - for stdin"
        ))
    };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let about = file.metadata().map_err(unreadable)?;
    if about.is_dir() {
        return Err(Failure::usage(format!("{} is a directory; name a file", path.display())));
    }
    let total = about.is_file().then_some(about.len());
    std::thread::spawn(move || send(BufReader::new(file), &lines));
    Ok((total, read))
}

/// Sends line after line until the input ends or nobody listens. An input that breaks in the middle
/// gives a last line that says so: it must not look like a short file.
fn send(mut input: impl BufRead, lines: &mpsc::Sender<Line>) {
    loop {
        let line = match next(&mut input) {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(_) => {
                let broken = Line { text: Err("the input cannot be read from here on"), bytes: 0 };
                drop(lines.blocking_send(broken));
                break;
            }
        };
        if lines.blocking_send(line).is_err() {
            break;
        }
    }
}

fn next(input: &mut impl BufRead) -> std::io::Result<Option<Line>> {
    let mut text = Vec::new();
    let mut bytes = read_part(input, &mut text)?;
    if bytes == 0 {
        return Ok(None);
    }
    if text.last() == Some(&b'\n') {
        text.pop();
        return Ok(Some(Line { text: Ok(text), bytes }));
    }
    if bytes < MAX_LINE_BYTES {
        return Ok(Some(Line { text: Ok(text), bytes }));
    }
    // Goes on behind the end of a line that is too long to be kept.
    while text.last() != Some(&b'\n') {
        text.clear();
        match read_part(input, &mut text)? {
            0 => break,
            more => bytes += more,
        }
    }
    Ok(Some(Line { text: Err("the line is longer than 2 MiB"), bytes }))
}

fn read_part(input: &mut impl BufRead, text: &mut Vec<u8>) -> std::io::Result<u64> {
    let read = input.take(MAX_LINE_BYTES).read_until(b'\n', text)?;
    Ok(u64::try_from(read).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut input: &[u8]) -> Vec<Result<String, &'static str>> {
        let mut lines = Vec::new();
        let mut bytes = 0;
        let whole = input.len();
        while let Some(line) = next(&mut input).unwrap() {
            bytes += usize::try_from(line.bytes).unwrap();
            lines.push(line.text.map(|text| String::from_utf8(text).unwrap()));
        }
        assert_eq!(bytes, whole);
        lines
    }

    #[test]
    fn every_line_counts_once() {
        let lines = |texts: &[&str]| texts.iter().map(|t| Ok((*t).to_owned())).collect::<Vec<_>>();
        assert_eq!(all(b""), lines(&[]));
        assert_eq!(all(b"a\nb\n"), lines(&["a", "b"]));
        assert_eq!(all(b"a\nb"), lines(&["a", "b"]));
        assert_eq!(all(b"a\n\nb\n"), lines(&["a", "", "b"]));
    }

    #[test]
    fn a_line_that_is_too_long_is_one_line() {
        let size = usize::try_from(MAX_LINE_BYTES).unwrap();
        let mut input = vec![b'x'; 2 * size + 5];
        input.extend(b"\nnext\n");
        let lines = all(&input);
        assert_eq!(lines, [Err("the line is longer than 2 MiB"), Ok("next".to_owned())]);
        let mut exact = vec![b'x'; size];
        exact.extend(b"\nnext");
        assert_eq!(all(&exact).len(), 2);
    }
}
