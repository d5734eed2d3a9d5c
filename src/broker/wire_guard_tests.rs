use lapin::protocol::basic::parse_properties;
use proptest::prelude::*;

use super::*;

fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![kind, 0, 1];
    out.extend(length32(payload));
    out.extend_from_slice(payload);
    out.push(FRAME_END);
    out
}

fn length32(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).unwrap().to_be_bytes()
}

fn length8(bytes: &[u8]) -> u8 {
    u8::try_from(bytes.len()).unwrap()
}

fn header(properties: &[u8]) -> Vec<u8> {
    [&[0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7][..], properties].concat()
}

fn through(bytes: &[u8], step: usize, room: usize) -> Vec<u8> {
    let (mut guard, mut out) = (WireGuard::default(), Vec::new());
    let mut buffer = vec![0; room];
    for chunk in bytes.chunks(step) {
        guard.push(chunk);
        loop {
            let count = guard.pull(&mut buffer);
            out.extend_from_slice(&buffer[..count]);
            if count == 0 {
                break;
            }
        }
    }
    out
}

/// What the library makes of the properties behind the guard.
fn read_by_library(properties: &[u8]) -> lapin::BasicProperties {
    let out = through(&frame(CONTENT_HEADER, &header(properties)), 5, 9);
    assert_eq!(out.last(), Some(&FRAME_END));
    let payload = &out[FRAME_HEAD..out.len() - 1];
    let (rest, read) = parse_properties(&payload[BEFORE_FLAGS..]).expect("readable");
    assert!(rest.is_empty(), "{rest:?}");
    read
}

fn table(raw: &[u8]) -> Vec<u8> {
    let mut out = HEADERS_FLAG.to_be_bytes().to_vec();
    out.extend(length32(raw));
    out.extend_from_slice(raw);
    out
}

fn has_broken_headers(properties: &lapin::BasicProperties) -> bool {
    properties.headers().as_ref().is_some_and(|table| table.contains_key(UNREADABLE_HEADERS))
}

#[test]
fn whole_frames_pass_unchanged_however_they_are_cut() {
    let good = [
        frame(METHOD, &[0, 10, 0, 11, 1, 2, 3]),
        frame(CONTENT_HEADER, &header(&table(b"\x01kS\x00\x00\x00\x01v"))),
        frame(3, b"payload"),
        frame(8, b""),
    ]
    .concat();
    for step in 1..good.len() {
        assert_eq!(through(&good, step, 3), good, "step {step}");
    }
}

#[test]
fn another_protocol_passes_unchanged() {
    for bytes in [&b"AMQP\x00\x00\x09\x01"[..], b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff"] {
        assert_eq!(through(bytes, 1, 4), bytes);
    }
}

#[test]
fn broken_tables_become_one_field() {
    assert!(!has_broken_headers(&read_by_library(&table(b"\x01kS\x00\x00\x00\x01\xff"))));
    assert!(has_broken_headers(&read_by_library(&table(b"\x02\xff\xfeV"))));
    assert!(has_broken_headers(&read_by_library(&table(b"\x01kz"))));
    assert!(has_broken_headers(&read_by_library(&table(b"\x0dk"))));
    assert!(has_broken_headers(&read_by_library(&table(b"\x01kA\x00\x00\x00\x01z"))));
}

#[test]
fn nesting_is_bounded() {
    let nested = |depth: usize| {
        (0..depth).fold(Vec::new(), |inner: Vec<u8>, _| {
            [&b"\x00F"[..], &length32(&inner), &inner].concat()
        })
    };
    assert!(!has_broken_headers(&read_by_library(&table(&nested(MAX_DEPTH)))));
    for depth in [MAX_DEPTH + 1, 1000, 20_000] {
        assert!(has_broken_headers(&read_by_library(&table(&nested(depth)))), "{depth}");
    }
}

#[test]
fn broken_strings_keep_their_length() {
    let mut properties = 0b1000_0000_1010_0000_u16.to_be_bytes().to_vec();
    properties.extend_from_slice(b"\x03a\xff\xfe\x02id\x02\xc3(");
    let read = read_by_library(&properties);
    assert_eq!(read.content_type().as_ref().unwrap().as_str(), "a??");
    assert_eq!(read.message_id().as_ref().unwrap().as_str(), "id");
    assert_eq!(read.kind().as_ref().unwrap().as_str(), "?(");
}

#[test]
fn a_header_larger_than_a_frame_is_cut() {
    let mut guard = WireGuard::default();
    guard.push(&frame(METHOD, &[0, 10, 0, 30, 0, 0, 0, 0, 16, 0, 0, 60]));
    let large = [&b"\x01kS\x00\x00\x13\x88"[..], &[b'v'; 5000]].concat();
    guard.push(&frame(CONTENT_HEADER, &header(&table(&large))));
    let mut out = vec![0; 10_000];
    let first = guard.pull(&mut out);
    assert!(first < 4096, "{first}");
}

#[test]
fn a_routing_key_that_is_not_utf8_does_not_reach_the_library() {
    let deliver = |key: &[u8]| {
        let mut out = vec![0, 60, 0, 60, 3, b't', b'a', b'g'];
        out.extend([0, 0, 0, 0, 0, 0, 0, 1, 0]);
        out.extend_from_slice(b"\x01x");
        out.push(length8(key));
        out.extend_from_slice(key);
        frame(METHOD, &out)
    };
    let returned = |key: &[u8]| {
        let mut out = vec![0, 60, 0, 50, 1, 56, 2, b'n', b'o', 1, b'x', length8(key)];
        out.extend_from_slice(key);
        frame(METHOD, &out)
    };
    let got = |key: &[u8]| {
        let mut out = vec![0, 60, 0, 71, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, b'x', length8(key)];
        out.extend_from_slice(key);
        out.extend([0, 0, 0, 0]);
        frame(METHOD, &out)
    };
    assert_eq!(through(&deliver(b"\xff"), 4, 64), deliver(b"?"));
    assert_eq!(through(&deliver(b"\xc3\xa4"), 4, 64), deliver(b"\xc3\xa4"));
    assert_eq!(through(&returned(b"a\xff"), 4, 64), returned(b"a?"));
    assert_eq!(through(&got(b"\xff"), 4, 64), got(b"?"));
}

proptest! {
    #[test]
    fn the_library_can_read_whatever_passes(properties in prop::collection::vec(any::<u8>(), 0..200)) {
        read_by_library(&properties);
    }

    #[test]
    fn the_library_can_read_any_table(
        fields in prop::collection::vec((any::<[u8; 2]>(), "[tbBsUuIilLfdDSAFTxVz]", prop::collection::vec(any::<u8>(), 0..12)), 0..6)
    ) {
        let raw: Vec<u8> = fields
            .iter()
            .flat_map(|(name, kind, value)| [&[1, name[0]], kind.as_bytes(), value].concat())
            .collect();
        read_by_library(&table(&raw));
    }
}
