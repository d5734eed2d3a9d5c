//! Whatever an argument holds, the request keeps its form.

use proptest::prelude::*;

use super::*;

fn context(arguments: &Json) -> RenderContext<'_> {
    RenderContext {
        arguments,
        idempotency_key: Some("key"),
        operation_id: "id",
        tenant: "t",
        environment: "e",
        job: None,
        receipt: None,
    }
}

fn argument(text: &str) -> Json {
    Json::Object(vec![("a".to_owned(), Json::String(text.to_owned()))])
}

/// Texts in which the characters that matter are frequent.
fn hostile() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("/".to_owned()),
        Just(".".to_owned()),
        Just("..".to_owned()),
        Just("\\".to_owned()),
        Just("@".to_owned()),
        Just("%2e".to_owned()),
        Just("\r\n".to_owned()),
        Just("?".to_owned()),
        Just("#".to_owned()),
        Just("&=".to_owned()),
        Just("{/a}".to_owned()),
        Just("\"".to_owned()),
        any::<String>(),
    ];
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn a_url_keeps_its_host_its_segments_and_its_pairs(text in hostile()) {
        let template = UrlTemplate::parse("http://h.example/t/{/a}/x?q={/a}&r=1").unwrap();
        if let Ok(url) = template.render(&context(&argument(&text)), &|_| None) {
            prop_assert!(url.bytes().all(|byte| byte.is_ascii_graphic()), "{url}");
            prop_assert!(url.starts_with("http://h.example/t/"), "{url}");
            prop_assert_eq!(url.matches('/').count(), 5, "{}", url);
            prop_assert_eq!(url.matches('?').count(), 1, "{}", url);
            prop_assert_eq!(url.matches('&').count(), 1, "{}", url);
            prop_assert!(!url.contains(['#', '@', '\\']), "{url}");
            let segment = url.split('/').nth(4).unwrap();
            prop_assert!(!matches!(segment, "" | "." | ".."), "{url}");
        }
    }

    #[test]
    fn a_header_is_one_visible_line(text in hostile()) {
        let template = TextTemplate::header("v={/a}").unwrap();
        if let Ok(value) = template.render_header(&context(&argument(&text)), &|_| None) {
            let value = value.unwrap();
            prop_assert!(value.bytes().all(|byte| byte.is_ascii_graphic()), "{value}");
            prop_assert_eq!(value, format!("v={text}"));
        }
    }

    #[test]
    fn a_body_reads_back_as_what_was_put_in(text in hostile()) {
        let body = Json::Object(vec![
            ("exact".to_owned(), Json::String("{/a}".to_owned())),
            ("inside".to_owned(), Json::String("<{/a}>".to_owned())),
        ]);
        let text = text.replace('\0', "");
        let rendered = BodyTemplate::parse(&body).unwrap().render(&context(&argument(&text))).unwrap();
        let back: serde_json::Value = serde_json::from_str(&rendered).unwrap();
        prop_assert_eq!(back["exact"].as_str(), Some(text.as_str()));
        let inside = format!("<{text}>");
        prop_assert_eq!(back["inside"].as_str(), Some(inside.as_str()));
    }

    #[test]
    fn no_text_makes_a_reader_panic(text in any::<String>()) {
        drop((UrlTemplate::parse(&text), TextTemplate::header(&text), SecretRef::parse(&text)));
    }
}
