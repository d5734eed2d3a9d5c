//! Files, directories, and arguments against the schema of a file.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A directory that goes away with the test.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("oncebox-contracts-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn a_file_keeps_its_text_and_a_bad_one_a_line_a_problem() {
    let dir = Dir::new();
    let path = dir.file("tickets.yaml", TICKETS);
    let loaded = load(&path, DEFAULT_MARGIN).unwrap();
    assert_eq!((loaded.text.as_str(), &loaded.path), (TICKETS, &path));
    let bad = changed(&changed(TICKETS, "lease: 30s", "lease: x"), "method: POST", "method: X");
    let path = dir.file("bad.yaml", bad);
    let error = load(&path, DEFAULT_MARGIN).unwrap_err();
    let file = path.display();
    let lines = error.lines();
    assert_eq!(lines.len(), 2, "{error}");
    assert!(lines[0].starts_with(&format!("{file}: /downstream/http/method: ")), "{error}");
    assert!(lines[1].starts_with(&format!("{file}: /lease: ")), "{error}");
}

#[test]
fn one_bad_file_keeps_no_other_out() {
    let dir = Dir::new();
    dir.file("b-tickets.yaml", TICKETS);
    dir.file("a-mail.yml", MAIL);
    dir.file("c-again.yaml", TICKETS);
    dir.file("d-broken.yaml", "a: [");
    dir.file("e-latin.yaml", b"purpose: gr\xf6\xdfe");
    dir.file("f-long.yaml", " ".repeat(MAX_CONTRACT_BYTES + 1));
    dir.file("README.md", "not a contract");
    std::fs::create_dir(dir.0.join("inner.yaml")).unwrap();
    let loaded = load_dir(&dir.0, DEFAULT_MARGIN).unwrap();
    let tools: Vec<&str> = loaded.contracts.iter().map(|l| l.contract.tool.as_str()).collect();
    assert_eq!(tools, ["mail.send", "tickets.create"]);
    let errors: Vec<String> = loaded.errors.iter().map(ToString::to_string).collect();
    for (error, part) in
        errors.iter().zip(["the same tool and version as", "line ", "UTF-8", "at most"])
    {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(errors.len(), 4, "{errors:#?}");
    assert!(load_dir(&dir.0.join("nowhere"), DEFAULT_MARGIN).is_err());
    let missing = load(&dir.0.join("nowhere.yaml"), DEFAULT_MARGIN).unwrap_err();
    assert!(missing.to_string().contains("cannot be read"), "{missing}");
}

#[test]
fn arguments_are_checked_without_echoing_them() {
    let check = ArgumentsCheck::compile(&contract(TICKETS).arguments).unwrap();
    let problems = |arguments: &str| -> Vec<String> {
        let found = check.check(&json(arguments)).err().unwrap_or_default();
        found.iter().map(|p| format!("{}: {}", p.pointer, p.message)).collect()
    };
    assert!(problems(r#"{"queue_id":"q","subject":"s","body":"b"}"#).is_empty());
    assert_eq!(problems(r#"{"queue_id":"q","body":"b"}"#), ["/subject: is missing"]);
    assert_eq!(
        problems(r#"{"queue_id":"private value","subject":"s","body":7}"#),
        ["/body: must be of type string", "/queue_id: must match the pattern ^[a-z0-9_-]{1,64}$"]
    );
    assert_eq!(
        problems(r#"{"queue_id":"q","subject":"","body":"b","a/b":1,"c":2}"#),
        [
            "/a~1b: is not known here; remove it",
            "/c: is not known here; remove it",
            "/subject: must have at least 1 characters"
        ]
    );
    assert_eq!(problems("[]"), [": must be of type object"]);
    let many: Vec<String> = (0..100).map(|n| format!("\"x{n}\":1")).collect();
    assert_eq!(problems(&format!("{{{}}}", many.join(","))).len(), MAX_PROBLEMS);
}

#[test]
fn no_kind_of_problem_shows_a_value() {
    let schema = serde_json::json!({
        "type": "object",
        "properties": {
            "enum": {"enum": ["a", "b"]}, "const": {"const": 1}, "min": {"minimum": 10},
            "max": {"maximum": 10}, "xmin": {"exclusiveMinimum": 10}, "xmax": {"exclusiveMaximum": 10},
            "multiple": {"multipleOf": 7}, "long": {"maxLength": 3}, "items": {"maxItems": 1},
            "few": {"minItems": 3}, "unique": {"uniqueItems": true}, "contains": {"contains": {"const": 1}},
            "not": {"not": {"type": "string"}}, "false": false, "any": {"anyOf": [{"type": "null"}]},
            "one": {"oneOf": [{"type": "string"}, {"minLength": 1}]}, "names": {"propertyNames": {"maxLength": 1}},
            "types": {"type": ["null", "boolean"]}, "pattern": {"pattern": "^x"},
        },
    });
    let check = ArgumentsCheck::compile(&schema).unwrap();
    let mut seen = Vec::new();
    for (name, value) in [
        ("enum", "\"S3CRET\""),
        ("const", "\"S3CRET\""),
        ("min", "7654321e-9"),
        ("max", "7654321"),
        ("xmin", "7654321e-9"),
        ("xmax", "7654321"),
        ("multiple", "7654321.5"),
        ("long", "\"S3CRET\""),
        ("items", "[\"S3CRET\",1]"),
        ("few", "[\"S3CRET\"]"),
        ("unique", "[\"S3CRET\",\"S3CRET\"]"),
        ("contains", "[\"S3CRET\"]"),
        ("not", "\"S3CRET\""),
        ("false", "\"S3CRET\""),
        ("any", "\"S3CRET\""),
        ("one", "\"S3CRET\""),
        ("names", "{\"S3CRET\":1}"),
        ("types", "\"S3CRET\""),
        ("pattern", "\"S3CRET\""),
    ] {
        let problems = check.check(&json(&format!("{{\"{name}\":{value}}}"))).unwrap_err();
        assert_eq!(problems.len(), 1, "{name}");
        assert_eq!(problems[0].pointer.to_string(), format!("/{name}"));
        let message = problems[0].message.clone();
        assert!(!message.contains("S3CRET") && !message.contains("7654321"), "{name}: {message}");
        seen.push(message);
    }
    seen.sort();
    seen.dedup();
    assert!(seen.len() >= 18, "{seen:#?}");
}

/// Through machine floats these would be equal to their neighbours, or infinite.
#[test]
fn limits_hold_for_numbers_that_no_float_can_hold() {
    let schema: serde_json::Value = serde_json::from_str(
        r#"{"type":"object","properties":{"n":{"type":"number","maximum":9007199254740992}}}"#,
    )
    .unwrap();
    let check = ArgumentsCheck::compile(&schema).unwrap();
    let good = |n: &str| check.check(&json(&format!("{{\"n\":{n}}}"))).is_ok();
    assert!(good("9007199254740992"));
    assert!(good("9007199254740991.99999999999999999999"));
    assert!(!good("9007199254740993"));
    assert!(!good("9007199254740992.00000000000000000001"));
    assert!(!good("1e400"));
    assert!(good("-1e400"));
    assert!(good("1e-400"));
}

/// A pattern on which a backtracking engine would run for years.
#[test]
fn patterns_run_in_linear_time() {
    let schema =
        serde_json::json!({"type": "object", "properties": {"a": {"pattern": "^(a|a)*$"}}});
    let check = ArgumentsCheck::compile(&schema).unwrap();
    let text = format!("{{\"a\":\"{}!\"}}", "a".repeat(100_000));
    assert!(check.check(&json(&text)).is_err());
}
