//! Access control in front of every page, and restrictions for browsers.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{connections::ConnectionPlace, key::AccessKey, pages::Service};

/// A page of another site can point its name to 127.0.0.1. Its requests then name that site.
const HOSTS: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// The policy of scripts and styles is in each page, which knows its script.
const HEADERS: [(HeaderName, &str); 7] = [
    (header::CACHE_CONTROL, "no-store"),
    (header::CONTENT_SECURITY_POLICY, "base-uri 'none'; frame-ancestors 'none'"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

pub(crate) async fn guard(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let mut response = match refusal(&service.key, &request) {
        // A refused client is disconnected, and takes no place of others.
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
    // The port may be another one: that of a tunnel.
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name);
    if !HOSTS.contains(&name) {
        return Some("vtax ui responds to the host names 127.0.0.1 and localhost only.\n");
    }
    let known = key.opens(request.uri().path());
    (!known).then_some("Access requires a key: open the full address that `vtax ui` printed.\n")
}
