//! Stable reason codes: what a caller, an operator and `docs/errors/` call the same thing.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal,)*) => {
        /// Why a record is where it is, or why a submission was refused. Each code has a page in
        /// `docs/errors/`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason { $($(#[$doc])* $name,)* }

        impl Reason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The stable code.
            #[must_use]
            pub fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }
        }
    };
}

reasons! {
    /// The key stands for another request.
    KeyReused = "operation_key_reused_with_different_request",
    /// The arguments do not fit the contract.
    InvalidArguments = "invalid_arguments",
    /// No worker, or no registry row, has this contract version.
    ContractVersionUnknown = "contract_version_unknown",
    /// The stored arguments no longer give the stored fingerprint.
    FingerprintDisagreement = "fingerprint_disagreement",
    /// The contract's attempts, or its time to give up, ran out.
    AttemptsExhausted = "attempts_exhausted",
    /// The downstream said a definite no.
    Refused = "refused",
    /// The downstream said no after an attempt whose outcome nobody knows.
    RefusedAfterUnproved = "refused_after_unproved",
    /// Nothing here can prove what happened, and sending again could double it.
    NoProof = "no_proof",
    /// The downstream's time to recognise our key has passed.
    WindowClosed = "window_closed",
    /// Two authentic pieces of evidence contradict each other.
    Conflict = "conflict",
    /// The operation lost its worker: after a send that must not be repeated, or again and again.
    WorkerLost = "worker_lost",
    /// The tool's code panicked again and again.
    ToolPanicked = "tool_panicked",
    /// The message can never be put on the wire.
    Unpublishable = "unpublishable",
    /// The outcome could not be written with its evidence.
    StoreFailed = "store_failed",
    /// An operator resolved it: there was no effect.
    ResolvedNotApplied = "resolved_not_applied",
    /// An operator resolved it: there was an effect, and it was undone.
    Compensated = "compensated",
    /// An operator put a lost message back whose effect may exist.
    MayHaveBeenSent = "may_have_been_sent",
    /// An earlier operation with its ordering key is unfinished.
    WaitingForOrder = "waiting_for_order",
    /// The tool's breaker is open after 401 or 403.
    DownstreamDenied = "downstream_denied",
    /// Tries again later: nothing was done.
    NotNow = "not_now",
    /// Tries again later: nothing left the worker.
    NotSent = "not_sent",
    /// Tries again later with the same key: the outcome is open.
    Ambiguous = "ambiguous",
    /// Not allowed to this actor.
    NotAuthorized = "not_authorized",
    /// The approval passed its time.
    ApprovalExpired = "approval_expired",
    /// Nobody answered the request for approval.
    ApprovalTimedOut = "approval_timed_out",
    /// A person said no.
    ApprovalDenied = "approval_denied",
    /// The approval was taken back before the effect.
    ApprovalWithdrawn = "approval_withdrawn",
    /// The target is not as the contract demands.
    PreconditionFailed = "precondition_failed",
    /// The effect exists, and what the contract demands after it does not hold.
    PostconditionFailed = "postcondition_failed",
    /// The effect exists, and nobody could be asked whether it is as the contract demands.
    PostconditionUnreachable = "postcondition_unreachable",
    /// Tries again later: whoever decides whether it may be sent could not be asked.
    PolicyUnreachable = "policy_unreachable",
    /// Tries again later: the precondition could not be asked.
    PreconditionUnreachable = "precondition_unreachable",
    /// Waits for a person's approval.
    AwaitingApproval = "awaiting_approval",
    /// The provider owns a job; it is followed until it ends.
    ProviderJob = "provider_job",
    /// The provider's job did not end in the time that the contract gives it.
    JobUnfinished = "job_unfinished",
    /// The provider's job failed.
    JobFailed = "job_failed",
    /// Looked up: there was no effect.
    ProvedAbsent = "proved_absent",
    /// Looked up: no effect is there, and a person decides whether it is made.
    AbsentNeedsDecision = "absent_needs_decision",
    /// An older operation with the same material arguments is unfinished.
    SuspectedTwin = "suspected_twin",
}

impl Reason {
    /// The reason that `code` names.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.code() == code)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn codes_are_unique_and_read_back() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_code(reason.code()), Some(*reason));
        }
        assert_eq!(Reason::from_code("no_such_reason"), None);
    }

    /// Whoever is told a code finds its page, and no page speaks of a code that is gone.
    #[test]
    fn each_code_has_a_page_and_each_page_a_code() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/errors");
        let index = fs::read_to_string(folder.join("README.md")).unwrap();
        let mut expected = BTreeSet::from(["README.md".to_owned()]);
        for reason in Reason::ALL {
            let code = reason.code();
            let page = fs::read_to_string(folder.join(format!("{code}.md")))
                .unwrap_or_else(|e| panic!("docs/errors/{code}.md: {e}"));
            assert!(page.starts_with(&format!("# `{code}`: ")), "{code}");
            let parts = ["What it means", "What is certainly true", "What to do next", "Who acts"];
            for part in parts {
                assert!(page.contains(&format!("\n**{part}.** ")), "{code}: {part}");
            }
            assert!(index.contains(&format!("| [`{code}`]({code}.md) | ")), "{code} in the index");
            expected.insert(format!("{code}.md"));
        }
        let pages = fs::read_dir(folder).unwrap();
        let pages: BTreeSet<String> =
            pages.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
        assert_eq!(pages, expected);
    }
}
