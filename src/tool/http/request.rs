//! From a rendered request to the one that goes on the wire.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};
use thiserror::Error;

use super::connect::Origin;
use crate::domain::contract;
use crate::domain::contract::template::RenderedRequest;

/// A request that can be written as it is.
pub(super) struct Prepared {
    pub(super) origin: Origin,
    pub(super) request: Request<Full<Bytes>>,
}

/// Why a request cannot be put on the wire. Names the part, never its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum Unbuildable {
    #[error("the URL is not an absolute http or https URL without user and password")]
    Url,
    #[error("a header's name or value holds a character that HTTP does not allow")]
    Header,
    #[error("the contract sets a header that belongs to the connection")]
    ReservedHeader,
}

/// Set here or by the HTTP library. Anybody else's could split one request into two, or make the
/// answer unreadable.
const RESERVED: [HeaderName; 9] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::EXPECT,
    header::ACCEPT_ENCODING,
];

/// Completes a contract's request. `traceparent` is dropped when it is no header value: telemetry
/// stops no effect. `last` says that the connection will carry nothing after it.
pub(super) fn prepare(
    rendered: RenderedRequest,
    traceparent: Option<&str>,
    last: bool,
) -> Result<Prepared, Unbuildable> {
    let uri: Uri = rendered.url.parse().map_err(|_| Unbuildable::Url)?;
    let (origin, host) = origin_of(&uri).ok_or(Unbuildable::Url)?;
    let target = uri.path_and_query().ok_or(Unbuildable::Url)?.as_str();

    let mut headers = contract_headers(&rendered.headers)?;
    headers.insert(header::HOST, host);
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    if last {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    let agent = HeaderValue::from_static(concat!("oncebox/", env!("CARGO_PKG_VERSION")));
    headers.entry(header::USER_AGENT).or_insert(agent);
    if let Some(trace) = traceparent.and_then(|text| HeaderValue::from_str(text).ok()) {
        headers.entry(HeaderName::from_static("traceparent")).or_insert(trace);
    }
    if rendered.body.is_none() && rendered.method.may_have_body() {
        // RFC 9110, section 8.6: a method that expects content says when there is none.
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    }

    let mut request = Request::new(Full::new(Bytes::from(rendered.body.unwrap_or_default())));
    *request.method_mut() = on_the_wire(rendered.method);
    *request.uri_mut() = target.parse().map_err(|_| Unbuildable::Url)?;
    *request.headers_mut() = headers;
    Ok(Prepared { origin, request })
}

fn on_the_wire(method: contract::Method) -> Method {
    match method {
        contract::Method::Get => Method::GET,
        contract::Method::Head => Method::HEAD,
        contract::Method::Post => Method::POST,
        contract::Method::Put => Method::PUT,
        contract::Method::Patch => Method::PATCH,
        contract::Method::Delete => Method::DELETE,
    }
}

/// Where to connect, and what to put into `Host`.
fn origin_of(uri: &Uri) -> Option<(Origin, HeaderValue)> {
    let (tls, usual_port) = match uri.scheme_str()? {
        "http" => (false, 80),
        "https" => (true, 443),
        _ => return None,
    };
    let authority = uri.authority()?;
    if authority.as_str().contains('@') || authority.host().is_empty() {
        return None;
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = authority.port_u16().unwrap_or(usual_port);
    let named = HeaderValue::from_str(authority.as_str()).ok()?;
    Some((Origin { tls, host, port }, named))
}

fn contract_headers(named: &[(String, String)]) -> Result<HeaderMap, Unbuildable> {
    let mut headers = HeaderMap::with_capacity(named.len() + 8);
    for (name, value) in named {
        let name: HeaderName = name.parse().map_err(|_| Unbuildable::Header)?;
        if RESERVED.contains(&name) {
            return Err(Unbuildable::ReservedHeader);
        }
        let mut value: HeaderValue = value.parse().map_err(|_| Unbuildable::Header)?;
        // Any of them may carry a secret; this keeps them out of debug output.
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(url: &str, headers: &[(&str, &str)]) -> RenderedRequest {
        let headers = headers.iter().map(|&(n, v)| (n.to_owned(), v.to_owned())).collect();
        let method = contract::Method::Post;
        RenderedRequest { method, url: url.to_owned(), headers, body: None }
    }

    #[test]
    fn the_host_is_split_from_the_target() {
        let check = |url: &str, tls: bool, host: &str, port: u16, named: &str, target: &str| {
            let prepared = prepare(rendered(url, &[]), None, false).unwrap();
            assert_eq!(prepared.origin, Origin { tls, host: host.to_owned(), port });
            assert_eq!(prepared.request.headers()[header::HOST], named);
            assert_eq!(prepared.request.uri(), target);
        };
        check("http://a.example/x%2Fy?q=1", false, "a.example", 80, "a.example", "/x%2Fy?q=1");
        check("https://a.example:8443", true, "a.example", 8443, "a.example:8443", "/");
        check("http://[::1]:8080/", false, "::1", 8080, "[::1]:8080", "/");
    }

    #[test]
    fn what_cannot_be_written_safely_is_not_built() {
        let check = |request: RenderedRequest, why: Unbuildable| {
            assert_eq!(prepare(request, None, false).err(), Some(why));
        };
        for url in ["", "/x", "ftp://a/", "http://", "http://user:pw@a/", "http://a b/"] {
            check(rendered(url, &[]), Unbuildable::Url);
        }
        check(rendered("http://a/", &[("x", "a\r\nb: c")]), Unbuildable::Header);
        check(rendered("http://a/", &[("x y", "a")]), Unbuildable::Header);
        for name in ["Host", "content-length", "Transfer-Encoding", "Accept-Encoding"] {
            check(rendered("http://a/", &[(name, "1")]), Unbuildable::ReservedHeader);
        }
    }

    #[test]
    fn a_trace_context_that_is_no_header_stops_nothing() {
        let check = |traceparent: Option<&str>, sent: Option<&str>| {
            let prepared = prepare(rendered("http://a/", &[]), traceparent, true).unwrap();
            let found = prepared.request.headers().get("traceparent");
            assert_eq!(found.map(|value| value.to_str().unwrap()), sent);
        };
        check(Some("00-ab-cd-01"), Some("00-ab-cd-01"));
        check(Some("a\nb"), None);
        check(None, None);
    }
}
