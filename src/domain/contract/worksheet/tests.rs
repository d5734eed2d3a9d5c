//! What the worksheet refers to is there, and each question has its places.

use std::path::Path;

use super::*;

#[test]
fn ids_are_told_once() {
    let ids: std::collections::BTreeSet<&str> =
        Question::ALL.iter().map(|question| question.told().0).collect();
    assert_eq!(ids.len(), Question::ALL.len());
}

#[test]
fn a_place_answers_one_question() {
    let check = |place: &str, question: Question| {
        assert_eq!(Question::of(&Pointer::parse(place).unwrap()), question, "{place}");
    };
    check("/purpose", Question::Effect);
    check("/use_when", Question::Effect);
    check("/repeat_side_effects", Question::Effect);
    check("/operation_key/created_by", Question::Identity);
    check("/arguments/properties/operation_key", Question::Identity);
    check("/twins/hold", Question::Identity);
    check("/arguments/additionalProperties", Question::Sameness);
    check("/fingerprint/fields/0", Question::Sameness);
    check("/concurrency/process", Question::Claim);
    check("/downstream/http/receipt", Question::Replay);
    check("/downstream/http/timeout", Question::InFlight);
    check("/lease", Question::InFlight);
    check("/downstream/poll", Question::InFlight);
    check("/effect_class", Question::Unknown);
    check("/downstream/http/refused/1", Question::Unknown);
    check("/downstream/lookup/absent", Question::Unknown);
    check("/owner", Question::Unknown);
    check("/authorization", Question::Permission);
    check("/downstream/http/headers/Authorization", Question::Permission);
    check("/retention/result", Question::Expiry);
    check("/tests", Question::Tests);
}

/// Evidence that names a file which is gone would be none.
#[test]
fn the_files_that_evidence_names_are_there() {
    let sources =
        [include_str!("evidence.rs"), include_str!("answers.rs"), include_str!("gaps.rs")].concat();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let quoted = sources.split('"').filter(|text| {
        !text.contains(' ')
            && text.contains('.')
            && ["src/", "tests/", "docs/", "migrations/", "ARCHITECTURE"]
                .iter()
                .any(|start| text.starts_with(start))
    });
    let mut named = 0;
    for path in quoted {
        assert!(root.join(path).exists(), "{path}");
        named += 1;
    }
    assert!(named > 20, "{named}");
    let tables = include_str!("../../../../migrations/0001_tables.sql");
    assert!(tables.contains("constraint operations_one_per_key unique (tenant_id, operation_key)"));
}
