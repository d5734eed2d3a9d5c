//! What goes to stdout: tables for people, JSON lines for programs.

use std::io::{self, Write as _};

use serde::Serialize;
use serde_json::Value;

/// Where results go, and in which form.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    json: bool,
}

impl Output {
    pub(super) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether programs read this.
    pub(super) fn json(self) -> bool {
        self.json
    }

    /// Writes text as it is, with a line end.
    pub(super) fn line(self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.write_all(b"\n")?;
        out.flush()
    }

    /// Writes one JSON object on a line.
    pub(super) fn object(self, value: &impl Serialize) -> io::Result<()> {
        self.line(&serde_json::to_string(value).map_err(io::Error::other)?)
    }

    /// Writes `value` for programs, `text` for people.
    pub(super) fn either(self, value: &impl Serialize, text: &str) -> io::Result<()> {
        if self.json { self.object(value) } else { self.line(text) }
    }

    /// Writes rows: objects for programs, a table for people.
    pub(super) fn rows(self, titles: &[&str], rows: &[(Vec<String>, Value)]) -> io::Result<()> {
        if self.json {
            return rows.iter().try_for_each(|(_, object)| self.object(object));
        }
        let cells: Vec<&[String]> = rows.iter().map(|(cells, _)| cells.as_slice()).collect();
        self.line(table(titles, &cells).trim_end_matches('\n'))
    }
}

/// Aligned columns under their titles. Control characters in cells are shown, not obeyed: what
/// others sent must not move a terminal's cursor.
fn table(titles: &[&str], rows: &[&[String]]) -> String {
    let titles: Vec<String> = titles.iter().map(|title| title.to_uppercase()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(titles.as_slice())
        .chain(rows.iter().copied())
        .map(|row| row.iter().map(|cell| shown(cell)).collect())
        .collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let gap = width.saturating_sub(cell.chars().count()) + 2;
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', gap));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A number of things: `1 error`, `2 errors`.
pub(super) fn counted(number: impl std::fmt::Display, thing: &str) -> String {
    let number = number.to_string();
    let end = if number == "1" { "" } else { "s" };
    format!("{number} {thing}{end}")
}

/// Text of others, fit for a terminal.
pub(super) fn shown(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let escaped = c.is_control().then(|| c.escape_default().collect::<Vec<_>>());
            escaped.unwrap_or_else(|| vec![c])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_control_characters_shown() {
        let row = ["a\u{1b}[2J".to_owned(), "b".to_owned()];
        assert_eq!(table(&["one", "two"], &[&row]), "ONE         TWO\na\\u{1b}[2J  b\n");
    }

    #[test]
    fn an_empty_table_has_its_titles() {
        assert_eq!(table(&["one", "two"], &[]), "ONE  TWO\n");
    }
}
