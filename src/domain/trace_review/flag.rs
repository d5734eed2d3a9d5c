//! What may be wrong with a trace.

/// A finding about a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// What it is.
    pub kind: Kind,
    /// The transition that shows it, from 0; `None` when it is one that is not there.
    pub at: Option<usize>,
}

/// What a flag says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// No submission made the record.
    NotProposed,
    /// A send without a claim of its own.
    SentUnclaimed,
    /// A send of what was never found valid.
    SentUnvalidated,
    /// A mark of a send for a tool whose effect is part of the settling transaction.
    SentInTransaction,
    /// Sent again, and nothing proved that the first send did nothing.
    SecondSend,
    /// Sent again when the downstream no longer recognised the key.
    WindowPassed,
    /// Two claims, and the first had not ended.
    TwoOwners,
    /// A fencing token that does not rise.
    TokenBack,
    /// Applied, and no receipt says so.
    NoReceipt,
    /// Two different receipts.
    TwoReceipts,
    /// Applied, and then something else.
    AppliedUndone,
    /// Rejected, though an earlier send is unproved.
    RejectedAfterSend,
    /// The record says more than the trace.
    EventsMissing,
    /// A decision asked for a move that a record cannot make.
    RefusedMove,
    /// A second send that a contract which cannot be read must have allowed.
    ContractUnread,
    /// An answer that could not be kept.
    ResponseDropped,
    /// Ended, and no message was let go.
    NotAcknowledged,
    /// A transition that this release does not know.
    UnknownEvent,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 18] = [
        Self::NotProposed,
        Self::SentUnclaimed,
        Self::SentUnvalidated,
        Self::SentInTransaction,
        Self::SecondSend,
        Self::WindowPassed,
        Self::TwoOwners,
        Self::TokenBack,
        Self::NoReceipt,
        Self::TwoReceipts,
        Self::AppliedUndone,
        Self::RejectedAfterSend,
        Self::EventsMissing,
        Self::RefusedMove,
        Self::ContractUnread,
        Self::ResponseDropped,
        Self::NotAcknowledged,
        Self::UnknownEvent,
    ];

    /// Whether it contradicts what a trace can be; the others are worth knowing.
    #[must_use]
    pub fn is_red(self) -> bool {
        match self {
            Self::NotProposed
            | Self::SentUnclaimed
            | Self::SentUnvalidated
            | Self::SentInTransaction
            | Self::SecondSend
            | Self::WindowPassed
            | Self::TwoOwners
            | Self::TokenBack
            | Self::NoReceipt
            | Self::TwoReceipts
            | Self::AppliedUndone
            | Self::RejectedAfterSend
            | Self::EventsMissing
            | Self::RefusedMove => true,
            Self::ContractUnread
            | Self::ResponseDropped
            | Self::NotAcknowledged
            | Self::UnknownEvent => false,
        }
    }

    /// The stable id, and what it means with what to do.
    #[must_use]
    pub fn told(self) -> (&'static str, &'static str) {
        match self {
            Self::NotProposed => (
                "not_proposed",
                "no submission stands before this: transitions are missing, or somebody made the record by hand",
            ),
            Self::SentUnclaimed => (
                "sent_unclaimed",
                "sent under a token that no claim took: two workers may have sent",
            ),
            Self::SentUnvalidated => {
                ("sent_unvalidated", "sent, and nothing says that its arguments were found valid")
            }
            Self::SentInTransaction => (
                "sent_in_transaction",
                "marked as sent, though this tool's effect is part of the settling transaction",
            ),
            Self::SecondSend => (
                "second_send_without_proof",
                "sent again, and nothing proved that the send before it did nothing: count the effects at the downstream",
            ),
            Self::WindowPassed => (
                "sent_after_window",
                "sent again after the downstream had forgotten the key: count the effects at the downstream",
            ),
            Self::TwoOwners => (
                "claimed_twice",
                "claimed while the claim before it had neither ended nor been lost",
            ),
            Self::TokenBack => {
                ("token_back", "the fencing token does not rise from claim to claim")
            }
            Self::NoReceipt => (
                "applied_without_receipt",
                "goes from sent to applied without a receipt: ask the downstream whether the effect exists",
            ),
            Self::TwoReceipts => (
                "two_receipts",
                "another receipt or job than the record's came in: compare both with the downstream",
            ),
            Self::AppliedUndone => {
                ("applied_undone", "applied before this, and applied is never undone")
            }
            Self::RejectedAfterSend => (
                "rejected_after_send",
                "called rejected, though an earlier send is unproved: the effect may exist",
            ),
            Self::EventsMissing => {
                ("events_missing", "the record says what no transition before it explains")
            }
            Self::RefusedMove => (
                "refused_move",
                "a decision asked for what the record cannot become; please report it",
            ),
            Self::ContractUnread => (
                "contract_unread",
                "its contract version cannot be read from the registry, so whether it may be sent again is not judged",
            ),
            Self::ResponseDropped => (
                "response_dropped",
                "the downstream's answer could not be kept; the status stands without it",
            ),
            Self::NotAcknowledged => (
                "not_acknowledged",
                "no acknowledgement is in the trace; it is written later and may be lost with its worker",
            ),
            Self::UnknownEvent => ("unknown_event", "a transition that this release does not know"),
        }
    }
}
