//! Makes every incoming frame one that the client library can take.
//!
//! The library gives the whole connection up at a byte it does not expect: a short string or a
//! header's name that is not UTF-8, a field type it does not know, a header larger than a frame.
//! Headers nested some hundred levels deep overflow its thread's stack and end the *process*. The
//! broker delivers all of these, takes everything unfinished back when the connection breaks, and
//! delivers them again. So the bytes are looked at before the library sees them, and the parts it
//! could not take are replaced: headers never decide anything here, and the body is never touched.
//! Such a message then arrives like any other, and is parked or handled by what its body says.
//!
//! What was replaced: bytes of a broken short string by `?`, a broken header table by one field
//! [`UNREADABLE_HEADERS`] that holds its bytes. Measurements: `docs/adr/0007-unreadable-messages.md`.
//!
//! What is not AMQP at all passes through unchanged, for the library to complain about.

/// The field that stands for a header table which the client library could not take.
pub(super) const UNREADABLE_HEADERS: &str = "oncebox-unreadable-headers";

/// As much of a broken table as is kept. Fits into the smallest frame of AMQP (4,096 bytes)
/// together with every short string a message can have.
const KEPT_TABLE_BYTES: usize = 256;
/// Deeper tables are not taken. The broker's own `x-death` needs two levels; the library's stack
/// held a hundred and not a thousand in a debug build.
const MAX_DEPTH: usize = 32;
/// No frame is larger, whatever was negotiated: it would have to be held in memory whole.
const MAX_FRAME_BYTES: usize = 64 * 1024 * 1024;

const FRAME_HEAD: usize = 7;
const METHOD: u8 = 1;
const CONTENT_HEADER: u8 = 2;
const FRAME_END: u8 = 0xce;
/// Frame types known to AMQP and the broker; anything else is another protocol.
const LAST_FRAME_TYPE: u8 = 8;

/// Bytes on their way from the socket to the library. Only whole frames are released.
#[derive(Debug)]
pub(super) struct WireGuard {
    held: Vec<u8>,
    /// Where the released part begins and ends.
    start: usize,
    released: usize,
    frame_max: usize,
    given_up: bool,
}

impl Default for WireGuard {
    fn default() -> Self {
        Self { held: Vec::new(), start: 0, released: 0, frame_max: usize::MAX, given_up: false }
    }
}

impl WireGuard {
    /// Takes bytes from the socket.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        while !self.given_up && self.release_frame() {}
        if self.given_up {
            self.released = self.held.len();
        }
    }

    /// No more bytes will come: what is left is no whole frame, but the library should see it.
    pub(super) fn finish(&mut self) {
        self.released = self.held.len();
    }

    /// Gives out released bytes, as many as fit.
    pub(super) fn pull(&mut self, room: &mut [u8]) -> usize {
        let ready = self.held.get(self.start..self.released).unwrap_or_default();
        let count = ready.len().min(room.len());
        if let (Some(to), Some(from)) = (room.get_mut(..count), ready.get(..count)) {
            to.copy_from_slice(from);
        }
        self.start += count;
        if self.start == self.released {
            // What remains is less than a frame, so moving it is cheap.
            self.held.drain(..self.released);
            (self.start, self.released) = (0, 0);
        }
        count
    }

    /// Releases the next frame, if it is whole.
    fn release_frame(&mut self) -> bool {
        let frame = self.held.get(self.released..).unwrap_or_default();
        let Some(&[kind, _, _, a, b, c, d]) = frame.first_chunk::<FRAME_HEAD>() else {
            self.given_up = frame.first().is_some_and(|kind| !is_frame_type(*kind));
            return false;
        };
        let size = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if !is_frame_type(kind) || size > MAX_FRAME_BYTES {
            self.given_up = true;
            return false;
        }
        let end = FRAME_HEAD + size;
        let Some(last) = frame.get(end) else { return false };
        if *last != FRAME_END {
            self.given_up = true;
            return false;
        }
        let payload = frame.get(FRAME_HEAD..end).unwrap_or_default();
        let replacement = match kind {
            METHOD => readable_method(payload, &mut self.frame_max),
            CONTENT_HEADER => readable_header(payload, self.frame_max),
            _ => None,
        };
        self.released += match replacement {
            None => end + 1,
            Some(payload) => self.replace_payload(size, &payload),
        };
        true
    }

    fn replace_payload(&mut self, size: usize, payload: &[u8]) -> usize {
        let from = self.released + FRAME_HEAD;
        self.held.splice(from..from + size, payload.iter().copied());
        let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
        if let Some(field) = self.held.get_mut(from - 4..from) {
            field.copy_from_slice(&length);
        }
        FRAME_HEAD + payload.len() + 1
    }
}

const CONNECTION_TUNE: (u16, u16) = (10, 30);
const BASIC_RETURN: (u16, u16) = (60, 50);
const BASIC_DELIVER: (u16, u16) = (60, 60);
const BASIC_GET_OK: (u16, u16) = (60, 71);

/// A replacement for a method that the library could not take; the agreed frame size on the way.
fn readable_method(payload: &[u8], agreed_frame_max: &mut usize) -> Option<Vec<u8>> {
    let mut reader = Reader { bytes: payload, at: 0 };
    match (reader.u16()?, reader.u16()?) {
        CONNECTION_TUNE => {
            reader.skip(2)?;
            let frame_max = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
            if frame_max > 0 {
                *agreed_frame_max = frame_max;
            }
            None
        }
        BASIC_DELIVER => {
            reader.short_string()?;
            reader.skip(9)?;
            readable_strings(payload, reader.at)
        }
        BASIC_GET_OK => readable_strings(payload, reader.at + 9),
        BASIC_RETURN => {
            reader.skip(2)?;
            reader.short_string()?;
            readable_strings(payload, reader.at)
        }
        _ => None,
    }
}

fn is_frame_type(kind: u8) -> bool {
    (METHOD..=LAST_FRAME_TYPE).contains(&kind)
}

/// Exchange and routing key stand one after the other in all three methods. A routing key can be
/// any bytes: `CC` headers and foreign bindings bring it into our queues.
fn readable_strings(payload: &[u8], exchange_at: usize) -> Option<Vec<u8>> {
    let mut reader = Reader { bytes: payload, at: exchange_at };
    let exchange = reader.short_string()?;
    let key = reader.short_string()?;
    if std::str::from_utf8(exchange).is_ok() && std::str::from_utf8(key).is_ok() {
        return None;
    }
    let mut out = payload.get(..exchange_at)?.to_vec();
    put_short_string(&mut out, exchange);
    put_short_string(&mut out, key);
    out.extend_from_slice(payload.get(reader.at..)?);
    Some(out)
}

/// The kinds of properties in the order of their flags, from bit 15 to bit 2.
const PROPERTIES: [Property; 14] = {
    use Property::{Octet, ShortString, Table, Timestamp};
    [
        ShortString, // content type
        ShortString, // content encoding
        Table,
        Octet,       // delivery mode
        Octet,       // priority
        ShortString, // correlation id
        ShortString, // reply to
        ShortString, // expiration
        ShortString, // message id
        Timestamp,
        ShortString, // type
        ShortString, // user id
        ShortString, // app id
        ShortString, // cluster id
    ]
};

#[derive(Clone, Copy)]
enum Property {
    ShortString,
    Table,
    Octet,
    Timestamp,
}

/// Class, weight, body size.
const BEFORE_FLAGS: usize = 12;
const HEADERS_FLAG: u16 = 1 << 13;
/// A second word of flags follows: no such properties exist.
const MORE_FLAGS: u16 = 1;

/// A replacement for a content header that the library could not take.
fn readable_header(payload: &[u8], frame_max: usize) -> Option<Vec<u8>> {
    let fixed = payload.get(..BEFORE_FLAGS)?;
    let too_large = payload.len() + FRAME_HEAD + 1 > frame_max;
    match readable_properties(payload, too_large) {
        Some(Checked::Fine) => None,
        Some(Checked::Repaired(properties)) => Some([fixed, &properties].concat()),
        // The flags promise more than there is: nothing of it can be told apart.
        None => {
            let mut out = fixed.to_vec();
            out.extend(HEADERS_FLAG.to_be_bytes());
            put_broken_table(&mut out, payload.get(BEFORE_FLAGS..).unwrap_or_default());
            Some(out)
        }
    }
}

enum Checked {
    Fine,
    Repaired(Vec<u8>),
}

fn readable_properties(payload: &[u8], too_large: bool) -> Option<Checked> {
    let mut reader = Reader { bytes: payload, at: BEFORE_FLAGS };
    let flags = reader.u16()?;
    let mut out = (flags & !0b11).to_be_bytes().to_vec();
    let mut repaired = flags & 0b11 != 0;
    if flags & MORE_FLAGS != 0 {
        return None;
    }
    for (bit, property) in PROPERTIES.iter().enumerate() {
        if flags & (1 << (15 - bit)) == 0 {
            continue;
        }
        match property {
            Property::ShortString => {
                let text = reader.short_string()?;
                repaired |= std::str::from_utf8(text).is_err();
                put_short_string(&mut out, text);
            }
            Property::Octet => out.extend_from_slice(reader.take(1)?),
            Property::Timestamp => out.extend_from_slice(reader.take(8)?),
            Property::Table => {
                let table = reader.long_string()?;
                if too_large || !is_readable_table(table, 0) {
                    repaired = true;
                    put_broken_table(&mut out, table);
                } else if let Ok(length) = u32::try_from(table.len()) {
                    out.extend(length.to_be_bytes());
                    out.extend_from_slice(table);
                }
            }
        }
    }
    // Bytes behind the last property would be taken for properties by the library's parser.
    repaired |= reader.at != payload.len();
    Some(if repaired { Checked::Repaired(out) } else { Checked::Fine })
}

fn put_short_string(out: &mut Vec<u8>, text: &[u8]) {
    let readable = std::str::from_utf8(text).is_ok();
    out.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
    out.extend(text.iter().map(|byte| if readable || byte.is_ascii() { *byte } else { b'?' }));
}

fn put_broken_table(out: &mut Vec<u8>, table: &[u8]) {
    let kept = table.get(..KEPT_TABLE_BYTES).unwrap_or(table);
    let mut field = Vec::new();
    put_short_string(&mut field, UNREADABLE_HEADERS.as_bytes());
    field.push(b'x');
    for bytes in [u32::try_from(kept.len()).unwrap_or_default().to_be_bytes().as_slice(), kept] {
        field.extend_from_slice(bytes);
    }
    out.extend(u32::try_from(field.len()).unwrap_or_default().to_be_bytes());
    out.extend_from_slice(&field);
}

/// Whether the client library can take this table.
fn is_readable_table(table: &[u8], depth: usize) -> bool {
    let mut reader = Reader { bytes: table, at: 0 };
    depth <= MAX_DEPTH
        && std::iter::from_fn(|| (reader.at < table.len()).then(|| reader.table_field(depth)))
            .all(|field| field.is_some())
}

fn is_readable_array(array: &[u8], depth: usize) -> bool {
    let mut reader = Reader { bytes: array, at: 0 };
    depth <= MAX_DEPTH
        && std::iter::from_fn(|| (reader.at < array.len()).then(|| reader.value(depth)))
            .all(|value| value.is_some())
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.take(count).map(|_| ())
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    fn short_string(&mut self) -> Option<&'a [u8]> {
        let length = *self.take(1)?.first()?;
        self.take(usize::from(length))
    }

    fn long_string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.u32()?).ok()?;
        self.take(length)
    }

    /// `None` also for a field that is whole, but that the library does not take.
    fn table_field(&mut self, depth: usize) -> Option<()> {
        std::str::from_utf8(self.short_string()?).ok()?;
        self.value(depth)
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        match *self.take(1)?.first()? {
            b'V' => Some(()),
            b't' | b'b' | b'B' => self.skip(1),
            b's' | b'U' | b'u' => self.skip(2),
            b'I' | b'i' | b'f' => self.skip(4),
            b'D' => self.skip(5),
            b'L' | b'l' | b'd' | b'T' => self.skip(8),
            b'S' | b'x' => self.long_string().map(|_| ()),
            b'F' => is_readable_table(self.long_string()?, depth + 1).then_some(()),
            b'A' => is_readable_array(self.long_string()?, depth + 1).then_some(()),
            _ => None,
        }
    }
}

#[cfg(test)]
#[path = "wire_guard_tests.rs"]
mod tests;
