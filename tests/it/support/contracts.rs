//! Contract texts for the three downstreams between which recovery tells: one that deduplicates, one that can only be
//! looked up, and one that is blind. All three are the fake downstream; the contract decides what is known of it.
//!
//! Their arguments are `{"queue_id", "subject"}`, their receipt is `/ticket_id`. An effect counts under what the downstream
//! is told: the first two under the key towards it, the blind one under the operation's id.

/// A contract in the making.
#[derive(Clone)]
pub(crate) struct ContractText {
    url: String,
    name: String,
    version: String,
    effect_class: &'static str,
    header: &'static str,
    timeout: &'static str,
    idempotency: Option<&'static str>,
    lookup: Option<LookupText>,
    jobs: Option<(&'static str, &'static str)>,
    sections: Vec<String>,
}

#[derive(Clone)]
struct LookupText {
    /// The query's name for what the look-up asks by.
    by: &'static str,
    authoritative: bool,
    visible_after: &'static str,
    absent: &'static str,
}

/// Remembers our key for a day, and cannot be looked up: an unproved send is repeated.
pub(crate) fn deduplicating(url: &str) -> ContractText {
    ContractText {
        header: "Idempotency-Key: \"{idempotency_key}\"",
        idempotency: Some("24h"),
        ..ContractText::new(url, "tickets.keyed", "key_based")
    }
}

/// Remembers nothing, and can be asked by our reference: absent is the truth after no time, and is sent again.
pub(crate) fn looked_up(url: &str) -> ContractText {
    ContractText {
        header: "X-Reference: \"{idempotency_key}\"",
        lookup: Some(LookupText {
            by: "reference",
            authoritative: true,
            visible_after: "0s",
            absent: "resend",
        }),
        ..ContractText::new(url, "tickets.found", "append")
    }
}

/// Remembers nothing and cannot be asked: an unproved send stays unknown.
pub(crate) fn blind(url: &str) -> ContractText {
    ContractText::new(url, "tickets.blind", "key_based")
}

impl ContractText {
    fn new(url: &str, name: &str, effect_class: &'static str) -> Self {
        Self {
            url: url.to_owned(),
            name: name.to_owned(),
            version: "1".to_owned(),
            effect_class,
            header: "X-Reference: \"{operation_id}\"",
            timeout: "2s",
            idempotency: None,
            lookup: None,
            jobs: None,
            sections: Vec::new(),
        }
    }

    /// Another tool.
    pub(crate) fn name(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Another version.
    pub(crate) fn version(self, version: &str) -> Self {
        Self { version: version.to_owned(), ..self }
    }

    /// Another effect class.
    pub(crate) fn effect_class(self, effect_class: &'static str) -> Self {
        Self { effect_class, ..self }
    }

    /// For every request; 2 s otherwise.
    pub(crate) fn timeout(self, timeout: &'static str) -> Self {
        Self { timeout, ..self }
    }

    /// How long the downstream is said to remember a key.
    pub(crate) fn window(self, window: &'static str) -> Self {
        Self { idempotency: Some(window), ..self }
    }

    /// A look-up by the idempotency key, for one that deduplicates besides.
    pub(crate) fn also_looked_up(self) -> Self {
        let lookup =
            LookupText { by: "key", authoritative: true, visible_after: "0s", absent: "resend" };
        Self { lookup: Some(lookup), ..self }
    }

    /// How long an effect may be invisible to look-ups.
    pub(crate) fn visible_after(self, visible_after: &'static str) -> Self {
        self.lookup(|lookup| LookupText { visible_after, ..lookup })
    }

    /// "Absent" is a cache's opinion.
    pub(crate) fn not_authoritative(self) -> Self {
        self.lookup(|lookup| LookupText { authoritative: false, ..lookup })
    }

    /// A person decides about what is absent.
    pub(crate) fn absent_to_an_operator(self) -> Self {
        self.lookup(|lookup| LookupText { absent: "operator", ..lookup })
    }

    /// Submitted as a provider's job, which is asked for every `every` until `give_up`.
    pub(crate) fn jobs(self, every: &'static str, give_up: &'static str) -> Self {
        Self { jobs: Some((every, give_up)), ..self }
    }

    /// The grants table decides who may.
    pub(crate) fn granted(self) -> Self {
        self.more("authorization: {grants: true}")
    }

    /// The policy decides who may.
    pub(crate) fn policy(self) -> Self {
        let Self { url, timeout, .. } = &self;
        let http = format!(r#"{{url: "{url}/v1/data/oncebox/allow", timeout: {timeout}}}"#);
        self.more(&format!("authorization: {{http: {http}}}"))
    }

    /// A person decides about requests for queue `queue`.
    pub(crate) fn approved(self, queue: &str, wait: &str, expires: &str) -> Self {
        let when = format!("{{/queue_id: [{queue}]}}");
        self.more(&format!("approval: {{when: {when}, wait: {wait}, expires: {expires}}}"))
    }

    /// The queue must be open before the first send.
    pub(crate) fn precondition(self) -> Self {
        let http = self.asking("/queues/{/queue_id}/open");
        self.more(&format!("preconditions: {{http: {http}, pass: [200]}}"))
    }

    /// The ticket must be verified after the effect. It is named by what was sent, so that calls count under what a test
    /// knows beforehand.
    pub(crate) fn postcondition(self) -> Self {
        let name = match self.header.split_once(": \"") {
            Some(("Idempotency-Key", value)) => format!("key={}", value.trim_end_matches('"')),
            Some((_, value)) => format!("reference={}", value.trim_end_matches('"')),
            None => unreachable!("every kind names its effect in a header"),
        };
        let http = self.asking(&format!("/tickets/verified?{name}"));
        self.more(&format!("postcondition: {{http: {http}, pass: [200]}}"))
    }

    /// Whole sections as they stand: `lease: 2s`, `retry: {...}`, `results: true`, `twins: {hold: true}`.
    pub(crate) fn more(mut self, sections: &str) -> Self {
        self.sections.push(sections.to_owned());
        self
    }

    /// The contract.
    pub(crate) fn text(&self) -> String {
        let Self { name, version, effect_class, .. } = self;
        let (downstream, sections) = (self.downstream(), self.sections.join("\n"));
        format!(
            r#"
name: {name}
version: "{version}"
purpose: Create one support ticket for one workflow step.
use_when: [a new issue is to be recorded]
do_not_use_when: [it is not known whether the issue was recorded]
operation_key:
  created_by: workflow step
  reused_by: every retry of that step
  new_key_when: the user asks for a second ticket
  scope: [tenant, environment, workflow_id, step_id]
effect_class: {effect_class}
repeat_side_effects: none
arguments:
  type: object
  additionalProperties: false
  required: [queue_id, subject]
  properties:
    queue_id: {{type: string}}
    subject: {{type: string}}
fingerprint: {{fields: [/queue_id, /subject]}}
downstream:
{downstream}
owner: {{reconciliation: support, respond_within: 4h, next_review: 2027-03-01}}
{sections}
"#
        )
    }

    fn downstream(&self) -> String {
        let Self { url, header, timeout, .. } = self;
        let (path, accepted) = match self.jobs {
            Some(_) => ("jobs", "\n    accepted: [202]\n    job: /job_id"),
            None => ("tickets", ""),
        };
        let mut text = format!(
            r#"  http:
    method: POST
    url: "{url}/{path}"
    headers: {{{header}}}
    body: {{queue: "{{/queue_id}}", subject: "{{/subject}}", body: text}}
    timeout: {timeout}
    applied: [200, 201]{accepted}
    refused: [400, 404, 422]
    not_now: [429]
    receipt: /ticket_id
    response: [/ticket_id, /status]"#
        );
        if let Some(window) = self.idempotency {
            text += &format!("\n  idempotency: {{window: {window}}}");
        }
        if let Some(LookupText { by, authoritative, visible_after, absent }) = &self.lookup {
            text += &format!(
                r#"
  lookup:
    http: {{method: GET, url: "{url}/tickets?{by}={{idempotency_key}}", timeout: {timeout}, found: 200, absent: 404, receipt: /ticket_id}}
    authoritative: {authoritative}
    visible_after: {visible_after}
    absent: {absent}"#
            );
        }
        if let Some((every, give_up)) = self.jobs {
            text += &format!(
                r#"
  poll:
    http: {{method: GET, url: "{url}/jobs/{{job}}", timeout: {timeout}, applied: [200], refused: [410], receipt: /ticket_id}}
    every: {every}
    give_up: {give_up}"#
            );
        }
        text
    }

    fn lookup(self, change: impl FnOnce(LookupText) -> LookupText) -> Self {
        let lookup = self.lookup.expect("a contract with a look-up");
        Self { lookup: Some(change(lookup)), ..self }
    }

    fn asking(&self, path: &str) -> String {
        let Self { url, timeout, .. } = self;
        format!(r#"{{method: GET, url: "{url}{path}", timeout: {timeout}}}"#)
    }
}
