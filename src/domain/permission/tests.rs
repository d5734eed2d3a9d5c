use super::*;
use crate::domain::fingerprint::TextRule;
use crate::domain::records::{HOUR, NOW, SECOND, ago, ahead};
use crate::domain::samples::json;

const MARGIN: Duration = Duration::from_secs(5);

fn limits(text: &str) -> BTreeMap<Pointer, Vec<Json>> {
    let Json::Object(members) = json(text) else { panic!("an object: {text}") };
    let values = |value| {
        let Json::Array(values) = value else { panic!("an array: {value:?}") };
        values
    };
    members
        .into_iter()
        .map(|(place, value)| (Pointer::parse(&place).unwrap(), values(value)))
        .collect()
}

#[test]
fn grant_and_approval_are_asked_together() {
    use ApprovalState as A;
    use Permission as P;
    let approved = |expires_at| Some(Some(A::Approved { expires_at }));
    let open = approved(ahead(HOUR));
    let denied = |why| P::Denied(why);
    let check = |granted, approval, expected| {
        let seen = permission(granted, approval, NOW, MARGIN);
        assert_eq!(seen, expected, "{granted:?} {approval:?}");
    };
    for granted in [None, Some(true)] {
        check(granted, None, P::Allowed);
        check(granted, Some(None), P::NeedsApproval);
        check(granted, Some(Some(A::Requested)), P::NeedsApproval);
        check(granted, open, P::Allowed);
        check(granted, Some(Some(A::Denied)), denied(Denial::ApprovalDenied));
        check(granted, Some(Some(A::Withdrawn)), denied(Denial::ApprovalWithdrawn));
        // The margin is for a clock that jumps: what expires within it has expired.
        check(granted, approved(ahead(6 * SECOND)), P::Allowed);
        check(granted, approved(ahead(5 * SECOND)), denied(Denial::ApprovalExpired));
        check(granted, approved(ago(SECOND)), denied(Denial::ApprovalExpired));
    }
    // An approval stands in for no right, and nobody is asked for one who has none.
    for approval in [None, Some(None), open, Some(Some(A::Requested)), Some(Some(A::Denied))] {
        check(Some(false), approval, denied(Denial::NotAuthorized));
    }
}

#[test]
fn a_grant_fits_with_all_its_limits() {
    let grants = |texts: &[&str]| {
        texts.iter().map(|text| Grant { arguments: limits(text) }).collect::<Vec<_>>()
    };
    let check = |texts: &[&str], arguments: &str, expected: bool| {
        assert_eq!(granted(&grants(texts), &json(arguments)), expected, "{texts:?} {arguments}");
    };
    check(&[], "{}", false);
    check(&["{}"], "{}", true);
    let queue = "{\"/queue\":[\"support\",\"sales\"]}";
    check(&[queue], "{\"queue\":\"sales\"}", true);
    check(&[queue], "{\"queue\":\"Sales\"}", false);
    check(&[queue], "{\"queue\":null}", false);
    check(&[queue], "{}", false);
    let both = "{\"/queue\":[\"support\"],\"/amount\":[10]}";
    check(&[both], "{\"queue\":\"support\",\"amount\":10}", true);
    check(&[both], "{\"queue\":\"support\",\"amount\":11}", false);
    check(&[both], "{\"queue\":\"support\"}", false);
    // Each grant stands for itself: two halves make no whole.
    let halves = ["{\"/queue\":[\"support\"]}", "{\"/amount\":[10]}"];
    check(&halves, "{\"queue\":\"sales\",\"amount\":10}", true);
    check(&halves, "{\"queue\":\"sales\",\"amount\":11}", false);
    // A limit with no value fits nothing, and a type is not another.
    check(&["{\"/queue\":[]}"], "{\"queue\":\"support\"}", false);
    check(&["{\"/amount\":[10]}"], "{\"amount\":\"10\"}", false);
    // However the number is spelled, and never through a binary float.
    for same in ["10", "10.0", "1e1"] {
        check(&["{\"/amount\":[10]}"], &format!("{{\"amount\":{same}}}"), true);
    }
    let large = "{\"/amount\":[9007199254740993]}";
    check(&[large], "{\"amount\":9007199254740992}", false);
}

#[test]
fn an_approval_is_needed_for_any_of_the_values() {
    let check = |when: &str, arguments: &str, expected: bool| {
        let approval = Approval { when: limits(when), wait: HOUR, expires: HOUR };
        let rule = FingerprintRule {
            fields: vec![Pointer::root()],
            defaults: limits("{\"/amount\":[5],\"/to\":[{\"queue\":\"sales\"}]}")
                .into_iter()
                .map(|(place, mut values)| (place, values.remove(0)))
                .collect(),
            text: BTreeMap::from([(
                Pointer::parse("/queue").unwrap(),
                vec![TextRule::Trim, TextRule::Lowercase],
            )]),
            numbers: NumberRule::Exact,
        };
        let needed = approval_needed(&approval, &json(arguments), &rule);
        assert_eq!(needed, expected, "{when} {arguments}");
    };
    check("{}", "{}", true);
    let when = "{\"/amount\":[100,200],\"/urgent\":[true]}";
    check(when, "{\"amount\":100}", true);
    check(when, "{\"amount\":1e2}", true);
    check(when, "{\"amount\":99,\"urgent\":true}", true);
    check(when, "{\"amount\":99,\"urgent\":false}", false);
    check(when, "{\"amount\":\"100\"}", false);
    check(when, "{}", false);
    // What an omission means is asked for as well, and so is the same text in another spelling.
    let small = "{\"/amount\":[5]}";
    check(small, "{}", true);
    check(small, "{\"amount\":5.0}", true);
    check(small, "{\"amount\":6}", false);
    let nested = "{\"/to/queue\":[\"sales\"]}";
    check(nested, "{}", true);
    check(nested, "{\"to\":{\"queue\":\"support\"}}", false);
    check(nested, "{\"to\":{}}", false);
    let queue = "{\"/queue\":[\"Sales\"]}";
    check(queue, "{\"queue\":\" sALES\\n\"}", true);
    check(queue, "{\"queue\":\"support\"}", false);
}
