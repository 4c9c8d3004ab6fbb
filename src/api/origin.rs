//! Which pages and which names a request may come by: against a web page that reaches a daemon
//! which has no tokens, on its own machine or by a name that it makes point there.
//!
//! A browser always says which page asks (`Origin`, with every request that changes something) and
//! by which name (`Host`). Without tokens, the name has to be one of loopback's or one that is
//! configured (421 otherwise), and the page has to be the daemon's own (403 otherwise). With tokens
//! neither matters: no page has one. Pages of other origins get to read answers only if they are
//! configured, and never with anything that a browser adds by itself.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HOST,
    ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::error::ApiError;
use crate::config::Config;

const ALLOWED_METHODS: HeaderValue = HeaderValue::from_static("GET, POST");

const ALLOWED_HEADERS: HeaderValue =
    HeaderValue::from_static("authorization, content-type, idempotency-key, last-event-id, prefer");

const EXPOSED_HEADERS: HeaderValue =
    HeaderValue::from_static("preference-applied, ratelimit, ratelimit-policy, retry-after");

/// How long a browser may remember the answer to its question, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// Who is let in.
#[derive(Debug)]
pub(super) struct Doorkeeper {
    /// Names that the daemon may be called besides those of loopback; `None`: any, for there are
    /// tokens.
    hosts: Option<Vec<String>>,
    /// Origins whose pages may read answers.
    origins: Vec<String>,
}

impl Doorkeeper {
    pub(super) fn new(config: &Config) -> Self {
        let names = || config.api.allowed_hosts.clone();
        Self {
            hosts: config.auth.tokens_file.is_none().then(names),
            origins: config.api.cors_origins.clone(),
        }
    }

    /// Lets in what comes by a name of loopback's, and no page.
    pub(super) fn of_loopback() -> Self {
        Self {
            hosts: Some(Vec::new()),
            origins: Vec::new(),
        }
    }

    /// The origin that may read the answer, if it is another one.
    fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<Option<HeaderValue>, ApiError> {
        let origin = single(headers.get_all(ORIGIN).iter()).map_err(|Twice| {
            // No browser does that.
            ApiError::OriginNotAllowed
        })?;
        let host =
            single(headers.get_all(HOST).iter()).map_err(|Twice| ApiError::HostNotAllowed)?;
        let is_listed = |origin: &&HeaderValue| {
            let known = self.origins.iter();
            known
                .map(String::as_bytes)
                .any(|known| known == origin.as_bytes())
        };
        let listed = origin.filter(is_listed).cloned();
        let Some(names) = &self.hosts else {
            return Ok(listed);
        };
        let host = host.map(HeaderValue::to_str).transpose();
        let host = host.map_err(|_| ApiError::HostNotAllowed)?;
        let target = uri.authority().map(|authority| authority.as_str());
        if !host
            .into_iter()
            .chain(target)
            .all(|host| is_ours(host, names))
        {
            return Err(ApiError::HostNotAllowed);
        }
        match origin {
            Some(origin) if listed.is_none() && !is_same(origin, target.or(host)) => {
                Err(ApiError::OriginNotAllowed)
            }
            // Reading by a tag, such as a picture's, has no `Origin`.
            None if is_of_another_page(headers) => Err(ApiError::OriginNotAllowed),
            Some(_) | None => Ok(listed),
        }
    }
}

/// Answers what may not come in, and browsers that ask whether their page may.
pub(super) async fn check(
    State(doorkeeper): State<Arc<Doorkeeper>>,
    request: Request,
    next: Next,
) -> Response {
    let listed = match doorkeeper.check(request.uri(), request.headers()) {
        Ok(listed) => listed,
        Err(error) => return error.into_response(),
    };
    let Some(origin) = listed else {
        return next.run(request).await;
    };
    let asks = request
        .headers()
        .contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if request.method() == Method::OPTIONS && asks {
        let allowed = [
            (ACCESS_CONTROL_ALLOW_METHODS, ALLOWED_METHODS),
            (ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED_HEADERS),
            (ACCESS_CONTROL_MAX_AGE, MAX_AGE),
        ];
        (StatusCode::NO_CONTENT, allowed).into_response()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
    headers.append(VARY, HeaderValue::from_static("origin"));
    response
}

/// Whether a browser says that another page has it fetched; going there by a link is no such thing.
fn is_of_another_page(headers: &HeaderMap) -> bool {
    let is = |name: &str, values: &[&str]| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.is_some_and(|value| values.contains(&value))
    };
    is("sec-fetch-site", &["cross-site", "same-site"]) && !is("sec-fetch-mode", &["navigate"])
}

/// A header that is there more than once.
struct Twice;

fn single<'h>(
    mut values: impl Iterator<Item = &'h HeaderValue>,
) -> Result<Option<&'h HeaderValue>, Twice> {
    let first = values.next();
    match values.next() {
        Some(_) => Err(Twice),
        None => Ok(first),
    }
}

/// A host and its port, if it has one. A name in another case is the same name.
fn split(authority: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (
                host,
                if port.is_empty() {
                    None
                } else {
                    Some(port.strip_prefix(':')?)
                },
            )
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = match port {
        None => None,
        Some(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => Some(text.parse().ok()?),
        Some(_) => return None,
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    let is_host = !host.is_empty() && host.bytes().all(is_name);
    is_host.then(|| (host.to_ascii_lowercase(), port))
}

/// Whether it is a name of loopback, where nobody else's name is, or one that is configured. By any
/// port: a tunnel has one of its own.
fn is_ours(authority: &str, names: &[String]) -> bool {
    let Some((host, _)) = split(authority) else {
        return false;
    };
    let is_loopback = host
        .parse::<IpAddr>()
        .is_ok_and(|address| address.to_canonical().is_loopback());
    is_loopback || host == "localhost" || names.contains(&host)
}

/// Whether a page comes from the host that it asks.
fn is_same(origin: &HeaderValue, host: Option<&str>) -> bool {
    let same = || {
        let (scheme, authority) = origin.to_str().ok()?.split_once("://")?;
        let usual = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return None,
        };
        let (page, page_port) = split(authority)?;
        let (own, own_port) = split(host?)?;
        let ports = (page_port.unwrap_or(usual), own_port.unwrap_or(usual));
        Some(page == own && ports.0 == ports.1)
    };
    same().unwrap_or(false)
}

#[cfg(test)]
mod tests;
