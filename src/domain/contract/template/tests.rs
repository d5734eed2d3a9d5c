use super::*;
use crate::domain::contract::{HttpRequest, Method};
use crate::domain::json::{JsonLimits, parse};
use std::time::Duration;

fn json(text: &str) -> Json {
    parse(text.as_bytes(), &JsonLimits::default()).unwrap()
}

/// A request with nothing in it but what a case is about.
fn request(url: &str, headers: &[(&str, &str)], body: Option<&str>) -> HttpRequest {
    HttpRequest {
        method: Method::Post,
        url: UrlTemplate::parse(url).unwrap(),
        headers: headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), TextTemplate::header(value).unwrap()))
            .collect(),
        body: body.map(|body| BodyTemplate::parse(&json(body)).unwrap()),
        timeout: Duration::from_secs(1),
        applied: vec![200],
        accepted: vec![],
        already: vec![],
        refused: vec![],
        not_now: vec![],
        receipt: None,
        response: vec![],
        job: None,
    }
}

fn render(request: &HttpRequest, arguments: &str) -> Result<RenderedRequest, TemplateError> {
    let arguments = json(arguments);
    let context = RenderContext {
        arguments: &arguments,
        idempotency_key: Some("key/1"),
        operation_id: "0198-id",
        tenant: "acme",
        environment: "prod",
        job: None,
        receipt: None,
    };
    let secrets = |secret: &SecretRef| match secret {
        SecretRef::Env(name) => match name.as_str() {
            "TOKEN" => Some("s3cr&t".to_owned()),
            "BASE" => Some("https://api.example.com:8443/".to_owned()),
            "PATHBASE" => Some("https://api.example.com/v1".to_owned()),
            "USERBASE" => Some("https://me@api.example.com".to_owned()),
            "EMPTY" => Some(String::new()),
            "SPLIT" => Some("a\r\nX-Evil: 1".to_owned()),
            _ => None,
        },
        SecretRef::File(path) => (path == "/run/token").then(|| "from-file\n".to_owned()),
    };
    request.render(&context, &secrets)
}

#[test]
fn a_body_keeps_types_and_digits_and_drops_what_is_missing() {
    let check = |body: &str, arguments: &str, expected: &str| {
        let rendered = render(&request("http://h/", &[], Some(body)), arguments).unwrap();
        assert_eq!(String::from_utf8(rendered.body.unwrap()).unwrap(), expected, "{body}");
    };
    check(r#"{"n":"{/n}"}"#, r#"{"n":9007199254740993}"#, r#"{"n":9007199254740993}"#);
    check(r#"{"n":"{/n}"}"#, r#"{"n":1.0}"#, r#"{"n":1.0}"#);
    check(r#"{"n":"{/n}"}"#, r#"{"n":1e400}"#, r#"{"n":1e400}"#);
    check(r#"{"n":1.50,"z":-0}"#, "{}", r#"{"n":1.50,"z":-0}"#);
    check(r#"{"n":"{/n}"}"#, r#"{"n":null}"#, r#"{"n":null}"#);
    check(r#"{"n":"{/n}"}"#, r#"{"n":{"b":[true]}}"#, r#"{"n":{"b":[true]}}"#);
    check(r#"{"n":"{/a/0/b}"}"#, r#"{"a":[{"b":"x"}]}"#, r#"{"n":"x"}"#);
    check(r#""{/whole}""#, r#"{"whole":[1,2]}"#, "[1,2]");
    check(r#"{"t":"no. {/n}: {/s}"}"#, r#"{"n":1.0,"s":"\"q\""}"#, r#"{"t":"no. 1.0: \"q\""}"#);
    check(r#"{"a":"{/a}","b":1}"#, "{}", r#"{"b":1}"#);
    check(r#"{"a":"x {/a} y","b":["{/a}","k"]}"#, "{}", r#"{"b":["k"]}"#);
    check(r#"{"a":{"b":"{/a}"}}"#, "{}", r#"{"a":{}}"#);
    check(r#"{"a":"{{/a}}"}"#, r#"{"a":1}"#, r#"{"a":"{/a}"}"#);
    check(r#"{"a":"$${/a}"}"#, r#"{"a":5}"#, r#"{"a":"$5"}"#);
    check(r#"{"a":"5$ and $x ${{"}"#, "{}", r#"{"a":"5$ and $x ${"}"#);
    check(r#"{"{/a}":1}"#, r#"{"a":"x"}"#, r#"{"{/a}":1}"#);
    check(
        r#"{"k":"{idempotency_key}","o":"{operation_id}","t":"{tenant}.{environment}"}"#,
        "{}",
        r#"{"k":"key/1","o":"0198-id","t":"acme.prod"}"#,
    );
}

/// What an argument holds is data: it is never read as a template or as JSON.
#[test]
fn values_are_never_read_again() {
    let body = r#"{"a":"{/a}","b":"<{/a}>"}"#;
    let arguments = r#"{"a":"{idempotency_key}${env:TOKEN}\",\"x\":1"}"#;
    let rendered = render(&request("http://h/", &[], Some(body)), arguments).unwrap();
    let sent = json(&String::from_utf8(rendered.body.unwrap()).unwrap());
    let text = r#"{idempotency_key}${env:TOKEN}","x":1"#;
    assert_eq!(sent.member("a").and_then(Json::as_str), Some(text));
    assert_eq!(sent.member("b").and_then(Json::as_str), Some(format!("<{text}>").as_str()));
    assert_eq!(sent.as_object().map(<[_]>::len), Some(2));
}

#[test]
fn a_url_holds_each_value_in_its_place() {
    let check = |url: &str, arguments: &str, expected: &str| {
        let rendered = render(&request(url, &[], None), arguments);
        assert_eq!(rendered.map(|r| r.url), Ok(expected.to_owned()), "{url} {arguments}");
    };
    check("http://h", "{}", "http://h/");
    check("http://h:80/a/", "{}", "http://h:80/a/");
    check("https://[::1]:8/a", "{}", "https://[::1]:8/a");
    check("http://h/t/{/id}/x", r#"{"id":"a b"}"#, "http://h/t/a%20b/x");
    check("http://h/t/{/id}", r#"{"id":12.0}"#, "http://h/t/12.0");
    check("http://h/t/{/id}", r#"{"id":"größe"}"#, "http://h/t/gr%C3%B6%C3%9Fe");
    check("http://h/t/{/id}", r#"{"id":"a/b?c#d%2e"}"#, "http://h/t/a%2Fb%3Fc%23d%252e");
    check("http://h/t/{/id}", r#"{"id":"x@evil.example"}"#, "http://h/t/x%40evil.example");
    check("http://h/t/{/id}", r#"{"id":"...x"}"#, "http://h/t/...x");
    check("http://h/t/{idempotency_key}", "{}", "http://h/t/key%2F1");
    check("http://h/?q={/q}&r=1", r#"{"q":"a&b=c\r\n"}"#, "http://h/?q=a%26b%3Dc%0D%0A&r=1");
    check("http://h/?q={/q}&r=1", "{}", "http://h/?r=1");
    check("http://h/?q={/q}", "{}", "http://h/");
    check("http://h/?q={/q}", r#"{"q":""}"#, "http://h/?q=");
    check("http://h/?k=${env:TOKEN}", "{}", "http://h/?k=s3cr%26t");
    check("${env:BASE}/t/{/a/b}", r#"{"a":{"b":1}}"#, "https://api.example.com:8443/t/1");
    check("${env:BASE}", "{}", "https://api.example.com:8443/");
}

#[test]
fn values_that_would_change_the_path_are_refused() {
    let check = |arguments: &str| {
        let error = render(&request("http://h/t/{/id}/x", &[], None), arguments).unwrap_err();
        assert_eq!(error.place, "url", "{arguments}");
        assert!(error.problem.is_of_the_arguments(), "{arguments}");
        assert!(!error.to_string().contains("secret-part"), "{error}");
    };
    for id in [
        "",
        ".",
        "..",
        "../admin",
        "a/../secret-part",
        "a/..",
        "..\\\\admin",
        "//evil",
        "a//b",
        "/",
        "a/",
        "/a",
        "./a",
        "a\\r\\nb",
        "a\\u0001",
        "a\\u0085b",
    ] {
        check(&format!(r#"{{"id":"{id}"}}"#));
    }
    check("{}");
    check(r#"{"id":null}"#);
    check(r#"{"id":true}"#);
    check(r#"{"id":["a"]}"#);
    check(r#"{"id":{"a":1}}"#);
}

#[test]
fn headers_are_visible_ascii_or_nothing() {
    let value = |template: &str, arguments: &str| {
        render(&request("http://h/", &[("X-A", template)], None), arguments)
            .map(|rendered| rendered.headers.first().map(|(_, value)| value.clone()))
    };
    let good = |template: &str, arguments: &str, expected: Option<&str>| {
        assert_eq!(value(template, arguments), Ok(expected.map(ToOwned::to_owned)), "{template}");
    };
    good("{operation_id}", "{}", Some("0198-id"));
    good("v={/a}", r#"{"a":"x"}"#, Some("v=x"));
    good("\"{/a}\"", r#"{"a":7}"#, Some("\"7\""));
    good("v={/a}", "{}", None);
    good("Bearer ${env:TOKEN}", "{}", Some("Bearer s3cr&t"));
    good("Bearer ${file:/run/token}", "{}", Some("Bearer from-file"));
    for bad in ["a\\r\\nX-Evil: 1", "a\\nb", "a\\tb", "a b", "größe", "", "\\u007f", "\\u2028"] {
        let error = value("v={/a}", &format!(r#"{{"a":"{bad}"}}"#)).unwrap_err();
        assert!(matches!(error.problem, TemplateProblem::HeaderValue(_)), "{bad}: {error}");
        assert_eq!(error.place, "header X-A");
    }
    let error = value("v={/a}", r#"{"a":false}"#).unwrap_err();
    assert!(matches!(error.problem, TemplateProblem::NotText(_)));
}

#[test]
fn secrets_and_bases_that_cannot_be_used_are_the_deployments_fault() {
    let check = |url: &str, header: &str, expected: &str| {
        let error = render(&request(url, &[("X-A", header)], None), "{}").unwrap_err();
        assert!(!error.problem.is_of_the_arguments());
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!error.to_string().contains("Evil"), "{error}");
    };
    check("http://h/", "${env:NOWHERE}", "${env:NOWHERE} is not set");
    check("http://h/", "${file:/nowhere}", "${file:/nowhere} is not set");
    check("http://h/", "${env:EMPTY}", "cannot stand here");
    check("http://h/", "${env:SPLIT}", "cannot stand here");
    check("${env:NOWHERE}/a", "x", "is not set");
    check("${env:TOKEN}/a", "x", "must hold http:// or https://");
    check("${env:PATHBASE}/a", "x", "must hold http:// or https://");
    check("${env:USERBASE}/a", "x", "must hold http:// or https://");
}

/// A request without the key that protects it must never leave.
#[test]
fn a_missing_key_never_drops_out() {
    let arguments = json("{}");
    let context = RenderContext {
        arguments: &arguments,
        idempotency_key: None,
        operation_id: "id",
        tenant: "t",
        environment: "e",
        job: None,
        receipt: None,
    };
    let key = "{idempotency_key}";
    for request in [
        request("http://h/", &[("Idempotency-Key", key)], None),
        request("http://h/?k={idempotency_key}", &[], None),
        request("http://h/", &[], Some(r#"{"k":"{idempotency_key}"}"#)),
        request("http://h/", &[], Some(r#"{"k":"x-{idempotency_key}"}"#)),
        request("http://h/", &[], Some(r#"{"k":"{job}"}"#)),
    ] {
        let error = request.render(&context, &|_| None).unwrap_err();
        assert!(matches!(error.problem, TemplateProblem::Missing(_)), "{error}");
    }
}

#[test]
fn an_optional_argument_beside_the_key_does_not_take_the_key_along() {
    for request in [
        request("http://h/", &[("Idempotency-Key", "{idempotency_key}-{/a}")], None),
        request("http://h/", &[("Idempotency-Key", "{/a}-{idempotency_key}")], None),
        request("http://h/", &[("Authorization", "${env:TOKEN}{/a}")], None),
        request("http://h/", &[], Some(r#"{"k":"{idempotency_key}-{/a}"}"#)),
    ] {
        let error = render(&request, "{}").unwrap_err();
        assert!(matches!(error.problem, TemplateProblem::Missing(_)), "{error}");
        assert!(request.check_buildable(&json("{}")).is_err());
        assert!(render(&request, r#"{"a":"x"}"#).is_ok());
    }
}

#[test]
fn buildable_arguments_are_told_early_whatever_the_secrets() {
    let with = request(
        "${env:BASE}/t/{/id}?q={/q}",
        &[("Authorization", "Bearer ${env:TOKEN}"), ("Idempotency-Key", "{idempotency_key}")],
        Some(r#"{"a":"{/a}","b":"b {/b}"}"#),
    );
    let check = |arguments: &str, good: bool| {
        assert_eq!(with.check_buildable(&json(arguments)).is_ok(), good, "{arguments}");
    };
    check(r#"{"id":"x"}"#, true);
    check(r#"{"id":1,"q":"ü","a":{},"b":"t"}"#, true);
    check("{}", false);
    check(r#"{"id":".."}"#, false);
    check(r#"{"id":"x","q":[]}"#, false);
    check(r#"{"id":"x","b":{}}"#, false);
    let body = request("http://h/", &[], Some(r#""{/whole}""#));
    assert!(body.check_buildable(&json("{}")).is_err());
    assert!(body.check_buildable(&json(r#"{"whole":null}"#)).is_ok());
}

#[test]
fn a_body_says_its_type_unless_the_contract_does() {
    let types = |headers: &[(&str, &str)], body: Option<&str>| {
        let rendered = render(&request("http://h/", headers, body), "{}").unwrap();
        let typed = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("content-type");
        rendered.headers.iter().filter(typed).map(|(_, value)| value.clone()).collect::<Vec<_>>()
    };
    assert_eq!(types(&[], Some("{}")), ["application/json"]);
    assert_eq!(
        types(&[("content-type", "application/x+json")], Some("{}")),
        ["application/x+json"]
    );
    assert!(types(&[], None).is_empty());
}

#[test]
fn debug_shows_no_values() {
    let request = request(
        "http://h/?k=${env:TOKEN}",
        &[("X-A", "Bearer ${env:TOKEN}")],
        Some(r#"{"a":"{/a}"}"#),
    );
    let shown = format!("{:?}", render(&request, r#"{"a":"private"}"#).unwrap());
    assert!(shown.contains("X-A"), "{shown}");
    for value in ["s3cr", "private"] {
        assert!(!shown.contains(value), "{shown}");
    }
}

#[test]
fn what_is_no_template_is_refused() {
    let check = |text: &str, part: &str| {
        let error = TextTemplate::header(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    };
    check("{", "not closed");
    check("{/a", "not closed");
    check("a}", "closes nothing");
    check("{}", "a placeholder is");
    check("{a}", "a placeholder is");
    check("{Tenant}", "a placeholder is");
    check("{/a~2}", "JSON Pointer");
    check("${env:}", "a secret is");
    check("${env:A-B}", "a secret is");
    check("${env:1A}", "a secret is");
    check("${file:relative}", "a secret is");
    check("${vault:x}", "a secret is");
    check("${TOKEN}", "a secret is");
    check("", "visible ASCII");
    check(" a", "visible ASCII");
    check("a\nb", "visible ASCII");
    check("größe", "visible ASCII");
    let secret_in_body = BodyTemplate::parse(&json(r#"{"a":["${env:TOKEN}", "{"]}"#)).unwrap_err();
    let places: Vec<String> = secret_in_body.iter().map(|(place, _)| place.to_string()).collect();
    assert_eq!(places, ["/a/0", "/a/1"]);
    assert_eq!(secret_in_body[0].1, TemplateSyntax::SecretPlace);
}

#[test]
fn what_is_no_address_is_refused() {
    for url in [
        "",
        "h/a",
        "ftp://h/",
        "HTTP://h/",
        "http://",
        "http:///a",
        "http://h:0/",
        "http://h:65536/",
        "http://h:/",
        "http://h:8a/",
        "http://me@h/",
        "http://me:pw@h/",
        "http://{/host}/",
        "http://h{/x}/",
        "http://{tenant}.example.com/",
        "{/url}",
        "{tenant}://h/",
        "http://h\\x/",
        "http://h/a#f",
        "http://h/a b",
        "http://h/a//b",
        "http://h//",
        "http://h/./a",
        "http://h/../a",
        "http://h/%2e%2e/a",
        "http://h/%2E/a",
        "http://h/%zz",
        "http://h/%2",
        "http://h/größe",
        "http://h/x{/id}",
        "http://h/{/id}.json",
        "http://h/{/a}{/b}",
        "http://h/?q=x{/a}",
        "http://h/?{/a}=1",
        "http://h/?=1",
        "http://h/?",
        "http://h/?a=1&&b=2",
        "http://h/?a=<",
        "http://h/${env:X}",
        "http://${env:X}/",
        "${env:X}",
        "${env:B}x/",
        "${env:B}:80/",
        "${file:/b}{/id}",
        "${env:B",
        "http://h/{/id",
        "http://[::g]/",
        "http://.h/",
        "http://-h/",
    ] {
        // A base of the deployment alone is an address; the list holds it to show the difference.
        assert_eq!(UrlTemplate::parse(url).is_ok(), url == "${env:X}", "{url}");
    }
}
