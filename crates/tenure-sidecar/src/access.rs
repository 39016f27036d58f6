//! Who may call: browsers only from the sidecar's own page, and others only with a token or
//! certificate.
//!
//! Three checks, in this order. **Host**: a foreign page whose host name was pointed at our address
//! (DNS rebinding) still sends that name. **Origin**: a browser says which page it asks for, so a
//! foreign page cannot press our buttons. **Token**: compared in constant time.

use std::net::IpAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;
use tenure::Secret;

use crate::page;
use crate::routes::problem;

/// Probes that tell nothing beyond yes and no, for those who cannot bring a token.
const OPEN_PATHS: [&str; 2] = ["/livez", "/readyz"];

/// Checks who may call. Put it around a router that others than its own program can reach.
#[derive(Clone, Debug, Default)]
pub struct Access {
    token: Option<Secret>,
    hosts: Vec<String>,
}

impl Access {
    /// Allows every caller that uses an IP address or `localhost`.
    pub fn new() -> Self {
        Access::default()
    }

    /// Requires `Authorization: Bearer` with this token. `/livez`, `/readyz` and the page's own
    /// files stay open: they contain nothing about elections.
    #[must_use]
    pub fn token(mut self, token: Option<Secret>) -> Self {
        self.token = token;
        self
    }

    /// Also allows these host names.
    #[must_use]
    pub fn hosts(mut self, hosts: impl IntoIterator<Item = String>) -> Self {
        self.hosts.extend(hosts.into_iter().map(|host| host.to_ascii_lowercase()));
        self
    }

    /// Puts the checks in front of every route of `router`.
    pub fn guard(self, router: Router) -> Router {
        router.layer(middleware::from_fn_with_state(Arc::new(self), check))
    }

    fn refusal(&self, request: &Request) -> Option<Response> {
        let headers = request.headers();
        let Some(host) = host(request) else {
            return Some(problem(StatusCode::BAD_REQUEST, "one Host header is needed"));
        };
        if !self.knows_host(&host) {
            let error = "this host name is not served: use an address, or add it to sidecar.hosts";
            return Some(problem(StatusCode::MISDIRECTED_REQUEST, error));
        }
        if !is_own_origin(headers, &host) {
            let error = "asked on behalf of another site: open the page of this address instead";
            return Some(problem(StatusCode::FORBIDDEN, error));
        }
        let only_reads = matches!(*request.method(), Method::GET | Method::HEAD);
        if !only_reads && !has_plain_body(headers) {
            let error = "send application/json, or no body";
            return Some(problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, error));
        }
        let path = request.uri().path();
        let is_open = OPEN_PATHS.contains(&path) || page::is_asset(path);
        (!is_open && !self.knows_token(headers)).then(unauthorized)
    }

    fn knows_host(&self, host: &str) -> bool {
        let name = without_port(host).to_ascii_lowercase();
        let address = name.trim_start_matches('[').trim_end_matches(']');
        // An address cannot be pointed elsewhere, a name can.
        name == "localhost" || address.parse::<IpAddr>().is_ok() || self.hosts.contains(&name)
    }

    fn knows_token(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.split_once(' '));
        match given {
            Some((scheme, given)) if scheme.eq_ignore_ascii_case("bearer") => {
                given.trim().as_bytes().ct_eq(token.reveal().as_bytes()).into()
            }
            _ => false,
        }
    }
}

async fn check(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    match access.refusal(&request) {
        Some(refusal) => refusal,
        None => next.run(request).await,
    }
}

fn unauthorized() -> Response {
    let refusal = problem(StatusCode::UNAUTHORIZED, "send Authorization: Bearer TOKEN");
    ([(WWW_AUTHENTICATE, "Bearer")], refusal).into_response()
}

/// The one host that a request names; `None` for none or several.
fn host(request: &Request) -> Option<String> {
    let mut named = request.headers().get_all(HOST).iter();
    match (named.next(), named.next()) {
        (Some(host), None) => host.to_str().ok().map(str::to_owned),
        _ => None,
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        // The colons of an address in brackets are its own.
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    }
}

/// Whether a browser, if it is one, asks on behalf of our own page.
fn is_own_origin(headers: &HeaderMap, host: &str) -> bool {
    if let Some(site) = headers.get("sec-fetch-site")
        && !matches!(site.as_bytes(), b"same-origin" | b"none")
    {
        // Following a link is no harm: nothing is done, and the other site sees nothing of it.
        let is_link = headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
        return is_link && headers.get(ORIGIN).is_none();
    }
    let mut origins = headers.get_all(ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (None, _) => true,
        (Some(origin), None) => {
            let origin = origin.as_bytes();
            let own = [format!("http://{host}"), format!("https://{host}")];
            own.iter().any(|own| own.as_bytes().eq_ignore_ascii_case(origin))
        }
        _ => false,
    }
}

/// A form of a foreign page can send texts and forms only.
fn has_plain_body(headers: &HeaderMap) -> bool {
    let Some(kind) = headers.get(CONTENT_TYPE) else { return true };
    let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn refused(access: &Access, request: axum::http::request::Builder) -> Option<u16> {
        let request = request.body(Body::empty()).unwrap();
        access.refusal(&request).map(|response| response.status().as_u16())
    }

    fn asks(path: &str) -> axum::http::request::Builder {
        Request::builder().uri(path).header(HOST, "127.0.0.1:8420")
    }

    #[test]
    fn names_that_could_be_pointed_anywhere_are_refused() {
        let access = Access::new().hosts(["Ops.example".to_owned()]);
        let host = |host: &str| refused(&access, Request::builder().uri("/").header(HOST, host));
        for good in ["localhost:8420", "127.0.0.1", "[::1]:8420", "[::1]", "10.0.0.7:80"] {
            assert_eq!(host(good), None, "{good}");
        }
        assert_eq!(host("ops.EXAMPLE:8420"), None);
        for bad in ["evil.example", "evil.example:8420", "127.0.0.1.evil.example", ""] {
            assert_eq!(host(bad), Some(421), "{bad}");
        }
        assert_eq!(refused(&access, Request::builder().uri("/")), Some(400));
        let twice = asks("/").header(HOST, "localhost");
        assert_eq!(refused(&access, twice), Some(400));
    }

    #[test]
    fn another_sites_page_can_press_no_button() {
        let access = Access::new();
        let own = asks("/resign/x").method("POST").header(ORIGIN, "http://127.0.0.1:8420");
        assert_eq!(refused(&access, own), None);
        for origin in ["http://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1"]
        {
            let foreign = asks("/resign/x").method("POST").header(ORIGIN, origin);
            assert_eq!(refused(&access, foreign), Some(403), "{origin}");
        }
        let marked = asks("/status").header("sec-fetch-site", "cross-site");
        assert_eq!(refused(&access, marked), Some(403));
        let link = asks("/").header("sec-fetch-site", "cross-site");
        assert_eq!(refused(&access, link.header("sec-fetch-mode", "navigate")), None);
        let form = asks("/resign/x").method("POST").header(CONTENT_TYPE, "text/plain");
        assert_eq!(refused(&access, form), Some(415));
    }

    #[test]
    fn a_token_is_needed_for_all_that_tells_anything() {
        let access = Access::new().token(Some(Secret::new("0123456789abcdef")));
        for open in ["/livez", "/readyz", "/"] {
            assert_eq!(refused(&access, asks(open)), None, "{open}");
        }
        assert_eq!(refused(&access, asks("/status")), Some(401));
        for wrong in ["Bearer 0123456789abcdeX", "Bearer", "Basic 0123456789abcdef", "Bearer "] {
            let asked = asks("/status").header(AUTHORIZATION, wrong);
            assert_eq!(refused(&access, asked), Some(401), "{wrong}");
        }
        let right = asks("/status").header(AUTHORIZATION, "bearer 0123456789abcdef");
        assert_eq!(refused(&access, right), None);
    }
}
