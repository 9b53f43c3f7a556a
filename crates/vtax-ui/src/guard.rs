//! Access control in front of every page, and restrictions for browsers.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderName, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{connections::ConnectionPlace, key::AccessKey};

/// Permitted host names. Another site can let its name resolve to 127.0.0.1, but its requests then contain that name.
const HOSTS: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// Headers of every response. The policy for scripts and styles is in each page, because it depends on the page's
/// script.
const HEADERS: [(HeaderName, &str); 7] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::CONTENT_SECURITY_POLICY, "base-uri 'none'; frame-ancestors 'none'"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

pub(crate) async fn guard(State(key): State<AccessKey>, request: Request, next: Next) -> Response {
    let mut response = match refusal(&key, &request) {
        // A refused client is disconnected, so it doesn't occupy a place.
        Some(text) => (StatusCode::FORBIDDEN, [(header::CONNECTION, "close")], text).into_response(),
        None => {
            request.extensions().get::<Arc<ConnectionPlace>>().inspect(|place| place.trust());
            next.run(request).await
        }
    };
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn refusal(key: &AccessKey, request: &Request) -> Option<&'static str> {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    // The port may differ from ours, e.g. that of a tunnel.
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name);
    if !HOSTS.contains(&name) {
        return Some("vtax ui responds to the host names 127.0.0.1 and localhost only.\n");
    }
    if !key.opens(request.uri().path()) {
        return Some("Access requires a key: open the full address that `vtax ui` printed.\n");
    }
    // Browsers report where a request comes from, and scripts cannot change that (Fetch Metadata Request Headers, 2.3).
    let from = request.headers().get("sec-fetch-site").map(HeaderValue::as_bytes);
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    let is_foreign = !is_read && from.is_some_and(|from| from != b"same-origin");
    is_foreign.then_some("Requests of other sites change nothing here.\n")
}
