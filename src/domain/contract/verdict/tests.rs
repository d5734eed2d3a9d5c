//! The whole product of what the verdict looks at.

use super::*;

const LOOK_UPS: [Option<(bool, AbsentRule)>; 5] = [
    None,
    Some((false, AbsentRule::Operator)),
    Some((false, AbsentRule::Resend)),
    Some((true, AbsentRule::Operator)),
    Some((true, AbsentRule::Resend)),
];

fn look_up(section: Option<(bool, AbsentRule)>) -> LookUp {
    section.map_or(LookUp::None, |(authoritative, absent)| LookUp::of(authoritative, absent))
}

/// Every combination, 1,440 of them.
fn product() -> Vec<Facts> {
    let mut all = Vec::new();
    for class in EffectClass::ALL {
        for section in LOOK_UPS {
            for approval in [Coverage::None, Coverage::Some, Coverage::Every] {
                for bits in 0..16u8 {
                    let bit = |at: u8| bits & (1 << at) != 0;
                    all.push(Facts {
                        class,
                        overwrite_safe: bit(0),
                        deduplicates: bit(1),
                        look_up: look_up(section),
                        receipt: bit(2),
                        approval,
                        owner: bit(3),
                    });
                }
            }
        }
    }
    all
}

/// Columns: what recovery can do. A: automate, a: with approval, m: manual. First with an owner and
/// receipts, then without an owner.
const TABLE: &str = "
class               dedup resends operator presence none | dedup resends operator presence none
read                A     A       A        A        A    | A     A       A        A        A
transactional       A     A       A        A        A    | A     A       A        A        A
natural, safe       A     A       A        A        A    | a     a       a        a        a
natural             A     A       A        a        a    | a     a       a        a        m
key_based           A     A       A        a        a    | a     a       a        a        m
append              A     A       A        a        m    | a     a       a        a        m
irreversible        A     a       A        a        m    | a     a       a        a        m
";

/// What the table says, written down apart from the code.
fn expected(facts: Facts) -> Verdict {
    let safe = facts.overwrite_safe && facts.class == EffectClass::NaturalIdempotent;
    let name = match (safe, facts.class == EffectClass::NaturalIdempotent) {
        (true, _) => "natural, safe",
        (false, true) => "natural",
        (false, false) => facts.class.as_str(),
    };
    let column = match (facts.deduplicates, facts.look_up) {
        (true, _) => 0,
        (false, LookUp::AbsentResends) => 1,
        (false, LookUp::AbsentToOperator) => 2,
        (false, LookUp::Presence) => 3,
        (false, LookUp::None) => 4,
    };
    let row = TABLE.lines().find(|line| line.starts_with(&format!("{name:<20}"))).unwrap();
    let (with, without) = row[20..].split_once('|').unwrap();
    let half = if facts.owner { with } else { without };
    let table = match half.split_whitespace().nth(column).unwrap() {
        "A" => Verdict::Automate,
        "a" => Verdict::WithApproval,
        "m" => Verdict::Manual,
        other => panic!("{other}"),
    };
    let external = !matches!(facts.class, EffectClass::Read | EffectClass::Transactional);
    let unproved = match facts.look_up {
        _ if facts.receipt || !external => Verdict::Automate,
        LookUp::None => Verdict::Manual,
        LookUp::Presence | LookUp::AbsentToOperator | LookUp::AbsentResends => {
            Verdict::WithApproval
        }
    };
    let asked = match facts.approval {
        Coverage::None => Verdict::Automate,
        Coverage::Some | Coverage::Every => Verdict::WithApproval,
    };
    table.max(unproved).max(asked)
}

#[test]
fn every_combination_is_judged_as_the_table_says() {
    let all = product();
    assert_eq!(all.len(), 6 * 2 * 2 * 5 * 2 * 3 * 2);
    let mut counts = [0; 3];
    for facts in all {
        let judged = facts.judge();
        assert_eq!(judged.verdict, expected(facts), "{facts:?} {judged:?}");
        assert!(!judged.reasons.is_empty(), "{facts:?}");
        counts[judged.verdict as usize] += 1;
    }
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}

#[test]
fn append_and_irreversible_without_a_way_back_run_only_with_approval() {
    for facts in product() {
        let blind = !facts.deduplicates && facts.look_up == LookUp::None;
        if blind && matches!(facts.class, EffectClass::Append | EffectClass::Irreversible) {
            let judged = facts.judge();
            assert_eq!(judged.verdict, Verdict::Manual, "{facts:?}");
            assert_eq!(judged.is_unserved(), facts.approval != Coverage::Every, "{facts:?}");
        } else {
            assert!(!facts.judge().is_unserved(), "{facts:?}: advice, no refusal");
        }
    }
}

#[test]
fn knowing_more_never_makes_a_verdict_stricter() {
    for facts in product() {
        let verdict = facts.judge().verdict;
        let better = [
            Facts { overwrite_safe: true, ..facts },
            Facts { deduplicates: true, ..facts },
            Facts { receipt: true, ..facts },
            Facts { owner: true, ..facts },
            Facts { look_up: facts.look_up.max(LookUp::AbsentToOperator), ..facts },
        ];
        for more in better {
            assert!(more.judge().verdict <= verdict, "{facts:?} -> {more:?}");
        }
        if facts.look_up == LookUp::None {
            let more = Facts { look_up: LookUp::Presence, ..facts };
            assert!(more.judge().verdict <= verdict, "{facts:?} -> {more:?}");
        }
    }
}

#[test]
fn an_approval_changes_what_runs_and_not_what_is_missing() {
    for facts in product() {
        let none = Facts { approval: Coverage::None, ..facts }.judge();
        let every = Facts { approval: Coverage::Every, ..facts }.judge();
        assert!(every.approval_suffices() && !every.is_unserved(), "{facts:?}");
        assert_eq!(none.approval_suffices(), none.verdict == Verdict::Automate, "{facts:?}");
        assert_eq!(none.needed, every.needed, "{facts:?}");
        assert!(!none.is_unserved() || none.verdict == Verdict::Manual, "{facts:?}");
        let some = Facts { approval: Coverage::Some, ..facts }.judge();
        assert_eq!(some.approval_suffices(), none.verdict == Verdict::Automate, "{facts:?}");
    }
}

#[test]
fn codes_and_sentences_are_told_once() {
    let reasons: std::collections::BTreeSet<Why> =
        product().into_iter().flat_map(|facts| facts.judge().reasons).collect();
    assert_eq!(reasons.len(), 14, "each reason is reached: {reasons:?}");
    let codes: std::collections::BTreeSet<&str> = reasons.iter().map(|why| why.told().0).collect();
    assert_eq!(codes.len(), reasons.len());
}
