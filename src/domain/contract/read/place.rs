//! A place in a document that is being read: its value, its pointer, and where problems go.

use std::cell::RefCell;
use std::time::Duration;

use crate::domain::contract::{Problem, parse_duration};
use crate::domain::json::Json;
use crate::domain::nearest::nearest;
use crate::domain::pointer::Pointer;

/// Reading goes on after a problem, so that one run shows all of them; `None` then stands for what
/// could not be read.
pub(super) struct Place<'a> {
    json: Option<&'a Json>,
    pointer: Pointer,
    problems: &'a RefCell<Vec<Problem>>,
}

impl<'a> Place<'a> {
    pub(super) fn root(json: &'a Json, problems: &'a RefCell<Vec<Problem>>) -> Self {
        Self { json: Some(json), pointer: Pointer::root(), problems }
    }

    /// The member `name`, there or not.
    pub(super) fn get(&self, name: &str) -> Self {
        let json = self.json.and_then(|json| json.member(name));
        Self { json, pointer: self.pointer.child(name), problems: self.problems }
    }

    fn at(&self, token: &str, json: &'a Json) -> Self {
        Self { json: Some(json), pointer: self.pointer.child(token), problems: self.problems }
    }

    pub(super) fn pointer(&self) -> &Pointer {
        &self.pointer
    }

    pub(super) fn is_there(&self) -> bool {
        self.json.is_some()
    }

    /// Notes a problem here.
    pub(super) fn complain<T>(&self, message: impl Into<String>) -> Option<T> {
        self.complain_at(self.pointer.clone(), message);
        None
    }

    pub(super) fn complain_at(&self, pointer: Pointer, message: impl Into<String>) {
        self.problems.borrow_mut().push(Problem::new(pointer, message));
    }

    /// What must be there.
    pub(super) fn json(&self) -> Option<&'a Json> {
        self.json.or_else(|| self.complain("is missing"))
    }

    /// `read`, or `default` when nothing is there.
    pub(super) fn or<T>(&self, default: T, read: impl FnOnce(&Self) -> Option<T>) -> Option<T> {
        if self.is_there() { read(self) } else { Some(default) }
    }

    /// `read`, or nothing when nothing is there.
    pub(super) fn maybe<T>(&self, read: impl FnOnce(&Self) -> Option<T>) -> Option<Option<T>> {
        if self.is_there() { read(self).map(Some) } else { Some(None) }
    }

    /// An object with no members but `known`.
    pub(super) fn object(&self, known: &[&str]) -> Option<()> {
        for (name, _) in self.members()? {
            if !known.contains(&name.as_str()) {
                let place = Pointer::root().child(name.as_str()).brief();
                let place = place.trim_start_matches('/');
                let hint = nearest(name, known.iter().copied()).map_or_else(
                    || format!("known here: {}", known.join(", ")),
                    |near| format!("did you mean {near}?"),
                );
                self.complain_at(
                    self.pointer.child(name),
                    format!("unknown field {place}; {hint}"),
                );
            }
        }
        Some(())
    }

    pub(super) fn members(&self) -> Option<&'a [(String, Json)]> {
        self.json()?.as_object().or_else(|| self.complain("must be a mapping"))
    }

    /// Each member by `read`.
    pub(super) fn each_member<T>(
        &self,
        mut read: impl FnMut(&str, &Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let read_all: Vec<Option<T>> = self
            .members()?
            .iter()
            .map(|(name, json)| read(name.as_str(), &self.at(name, json)))
            .collect();
        read_all.into_iter().collect()
    }

    /// Each item of a list by `read`.
    pub(super) fn list<T>(&self, mut read: impl FnMut(&Self) -> Option<T>) -> Option<Vec<T>> {
        let items = self.json()?.as_array().or_else(|| self.complain("must be a list"))?;
        let read_all: Vec<Option<T>> = items
            .iter()
            .enumerate()
            .map(|(index, json)| read(&self.at(&index.to_string(), json)))
            .collect();
        read_all.into_iter().collect()
    }

    /// A text that says something.
    pub(super) fn text(&self) -> Option<String> {
        match self.json()?.as_str() {
            Some(text) if !text.trim().is_empty() => Some(text.to_owned()),
            Some(_) => self.complain("must not be empty"),
            None => self
                .complain("must be a text; put quotes around a number, a date or a word like true"),
        }
    }

    pub(super) fn texts(&self) -> Option<Vec<String>> {
        self.list(Self::text)
    }

    pub(super) fn flag(&self) -> Option<bool> {
        self.json()?.as_bool().or_else(|| self.complain("must be true or false"))
    }

    pub(super) fn duration(&self) -> Option<Duration> {
        match self.json()?.as_str().map(parse_duration) {
            Some(Ok(span)) => Some(span),
            Some(Err(error)) => self.complain(error.to_string()),
            None => self.complain("must be a duration such as 500ms, 10s, 5m, 24h, 30d"),
        }
    }

    pub(super) fn json_pointer(&self) -> Option<Pointer> {
        match self.json()?.as_str().map(Pointer::parse) {
            Some(Ok(pointer)) => Some(pointer),
            Some(Err(error)) => self.complain(error.to_string()),
            None => self.complain("must be a JSON Pointer such as /ticket_id"),
        }
    }

    pub(super) fn whole<T: std::str::FromStr>(&self, range: &str) -> Option<T> {
        let number = self.json()?.as_number().and_then(|number| number.as_str().parse().ok());
        number.or_else(|| self.complain(format!("must be a whole number {range}")))
    }

    pub(super) fn fraction(&self) -> Option<f64> {
        let number = self.json()?.as_number().and_then(|number| number.as_str().parse().ok());
        number.filter(|n: &f64| n.is_finite()).or_else(|| self.complain("must be a number"))
    }

    pub(super) fn status(&self) -> Option<u16> {
        let status: u16 = self.whole("from 100 to 599")?;
        if (100..600).contains(&status) {
            Some(status)
        } else {
            self.complain("must be a whole number from 100 to 599")
        }
    }

    pub(super) fn statuses(&self) -> Option<Vec<u16>> {
        self.list(Self::status)
    }

    /// One status, or a list of them.
    pub(super) fn one_or_more_statuses(&self) -> Option<Vec<u16>> {
        if self.json()?.as_array().is_some() {
            self.statuses()
        } else {
            self.status().map(|status| vec![status])
        }
    }

    /// One of some words.
    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let text = self.json()?.as_str().unwrap_or_default();
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        found.or_else(|| {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.complain(format!("must be one of {}", known.join(", ")))
        })
    }
}
