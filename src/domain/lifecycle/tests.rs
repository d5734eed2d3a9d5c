use super::*;

/// One line a state, one column an event; `.` refused, `=` stays, `!` conflict, letters below.
const TABLE: &str = "
                    reopen claim claim+ mark sched proof fail rej lose park retry reop r+app r-app rcomp rel hold ask appr acc unc abs exp
queued              .      C     S      .    R     A     F    J   U    P    Q     .    A     F     F     .   H    W   .    O   U   .   .
held                .      .     .      .    .     A     .    J   U    .    .     .    A     .     .     Q   =    .   .    O   U   .   .
awaiting_approval   .      .     .      .    .     A     .    J   U    .    .     .    A     .     .     .   .    =   Q    O   U   .   .
claimed             .      C     S      S    R     A     F    J   U    P    .     .    A     F     F     .   H    W   .    O   U   .   .
sent                .      C     S      =    R     A     F    J   U    P    .     .    A     F     F     .   H    W   .    O   U   .   .
accepted            .      .     .      .    .     A     F    .   U    .    O     .    A     F     F     .   .    .   .    =   U   .   .
retry_scheduled     .      C     S      .    R     A     F    J   U    P    Q     .    A     F     F     .   H    W   .    O   U   .   .
parked              .      .     .      .    .     A     .    J   U    =    Q     .    A     F     F     .   .    .   .    O   U   .   .
applied             .      .     .      .    .     =     .    .   .    .    .     .    =     .     .     .   .    .   .    =   =   .   E
rejected            Q      .     .      .    .     !     .    =   .    .    .     .    !     .     .     .   .    .   .    !   !   .   E
failed_permanent    .      .     .      .    .     !     =    .   .    .    .     Q    !     =     =     .   .    .   .    !   !   .   E
unknown             .      .     .      .    .     A     .    .   =    .    .     .    A     F     F     .   .    .   .    =   U   F   .
expired             .      .     .      .    .     !     .    .   .    .    .     .    !     .     .     .   .    .   .    !   !   .   =
";

fn letter(next: Next) -> &'static str {
    match next {
        Next::Refused(why) => {
            assert!(!why.is_empty());
            "."
        }
        Next::Stay => "=",
        Next::Conflict => "!",
        Next::To(State::Queued) => "Q",
        Next::To(State::Held) => "H",
        Next::To(State::AwaitingApproval) => "W",
        Next::To(State::Claimed) => "C",
        Next::To(State::Sent) => "S",
        Next::To(State::Accepted) => "O",
        Next::To(State::RetryScheduled) => "R",
        Next::To(State::Parked) => "P",
        Next::To(State::Applied) => "A",
        Next::To(State::Rejected) => "J",
        Next::To(State::FailedPermanent) => "F",
        Next::To(State::Unknown) => "U",
        Next::To(State::Expired) => "E",
    }
}

fn name(state: State) -> &'static str {
    let (status, phase) = state.columns();
    phase.unwrap_or(status)
}

#[test]
fn every_event_leads_from_every_state_where_the_table_says() {
    let lines: Vec<&str> = TABLE.lines().skip(2).collect();
    assert_eq!(lines.len(), State::ALL.len());
    for (state, line) in State::ALL.into_iter().zip(lines) {
        let mut cells = line.split_whitespace();
        assert_eq!(cells.next(), Some(name(state)));
        let cells: Vec<&str> = cells.collect();
        assert_eq!(cells.len(), Event::ALL.len(), "{line}");
        for (event, cell) in Event::ALL.into_iter().zip(cells) {
            assert_eq!(letter(next(state, event)), cell, "{} x {event:?}", name(state));
        }
    }
}

#[test]
fn applied_is_never_undone() {
    for event in Event::ALL {
        let after = next(State::Applied, event);
        let kept = matches!(after, Next::Refused(_) | Next::Stay);
        assert!(kept || (event, after) == (Event::Expire, Next::To(State::Expired)), "{event:?}");
    }
}

#[test]
fn a_tombstone_never_runs_again() {
    for event in Event::ALL {
        let after = next(State::Expired, event);
        assert!(!matches!(after, Next::To(_)), "{event:?}");
    }
}

#[test]
fn states_and_columns_name_each_other() {
    for state in State::ALL {
        let (status, phase) = state.columns();
        assert_eq!(State::from_columns(status, phase), Some(state));
        assert_eq!(state.is_pending(), status == "pending");
        assert_eq!(state.is_finished(), !matches!(status, "pending" | "unknown"));
    }
    for (status, phase) in
        [("pending", None), ("applied", Some("queued")), ("pending", Some("lost")), ("done", None)]
    {
        assert_eq!(State::from_columns(status, phase), None);
    }
}
