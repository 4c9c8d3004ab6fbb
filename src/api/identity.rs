//! Who asks, and whether they may: before a handler sees anything of a request.
//!
//! Every route says in the table of routes what it needs; this decides and hands the handler a
//! [`Caller`]. Whatever is wrong with a token, the answer is the same. The token goes no further:
//! a handler never sees the header it came in.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::ApiState;
use super::error::ApiError;
use super::held::hold;
use super::serve::Peer;
use super::tenants::Tenant;
use crate::auth::{AuthError, Identity, Keyring, Role};
use crate::clock;
use crate::ids::{ClientKey, TenantId};
use crate::runs::tenants::Submitter;

/// What a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Nothing: it tells nothing about anybody.
    Open,
    /// A token with at least this role.
    Needs(Role),
}

/// What stands before a route.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    pub(super) state: ApiState,
    pub(super) access: Access,
}

/// How often it is looked whether a token is still good while an answer takes its time.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// What a request was let in with.
#[derive(Debug, Clone)]
pub(super) struct Credential(Option<(Arc<Keyring>, Identity)>);

impl Credential {
    /// Returns when it is good no more, and never where there are no tokens. Looks at once: whoever
    /// asks again and again need not wait in between.
    pub(super) async fn ended(&self) -> ApiError {
        let Some((keyring, identity)) = &self.0 else {
            return std::future::pending().await;
        };
        loop {
            if let Err(error) = keyring.confirm(identity, clock::now()) {
                return error.into();
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
    }
}

impl From<AuthError> for ApiError {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::Refused => Self::Unauthenticated,
            AuthError::Unavailable => Self::TokensUnavailable,
        }
    }
}

/// Whose request it is.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub(super) tenant: Arc<Tenant>,
    /// For answers that take their time.
    pub(super) credential: Credential,
    /// Whose turn it is within the tenant.
    client: ClientKey,
    /// Who shares the keys for repeating requests.
    pub(super) key_scope: ClientKey,
}

impl Caller {
    pub(super) fn tenant_id(&self) -> &TenantId {
        &self.tenant.id
    }

    /// Whose a run of this caller is.
    pub(super) fn submitter(&self) -> Submitter {
        Submitter {
            tenant: self.tenant.id.clone(),
            client: self.client.clone(),
            quotas: self.tenant.quotas,
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    /// A route that forgot its guard answers nobody.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or(ApiError::Unauthenticated)
    }
}

/// Lets a request through to its route, or answers it.
pub(super) async fn guard(
    State(guard): State<Guard>,
    mut request: Request,
    next: Next,
) -> Response {
    let Access::Needs(role) = guard.access else {
        return next.run(request).await;
    };
    match recognise(&guard.state, role, &request) {
        Ok(caller) => {
            let place = match caller.tenant.place() {
                Ok(place) => place,
                Err(standing) => return ApiError::TooManyRequests(standing).into_response(),
            };
            request.headers_mut().remove(AUTHORIZATION);
            request.extensions_mut().insert(caller);
            hold(next.run(request).await, place)
        }
        Err(error) => error.into_response(),
    }
}

fn recognise(state: &ApiState, needed: Role, request: &Request) -> Result<Caller, ApiError> {
    let Some(keyring) = &state.keyring else {
        return without_tokens(state, request);
    };
    let sent = bearer(request.headers());
    let identity = keyring.recognise(sent, clock::now())?;
    // A token of a tenant that is configured no more is good for nothing.
    let tenant = state.tenants.get(&identity.tenant);
    let tenant = tenant.ok_or(ApiError::Unauthenticated)?;
    if !identity.role.is_enough_for(needed) {
        return Err(ApiError::Forbidden { needed });
    }
    Ok(Caller {
        tenant,
        client: ClientKey(format!("key {}", identity.key)),
        credential: Credential(Some((Arc::clone(keyring), identity))),
        key_scope: ClientKey("tenant".to_owned()),
    })
}

/// Without tokens there is one tenant, and its clients are told apart by their addresses.
fn without_tokens(state: &ApiState, request: &Request) -> Result<Caller, ApiError> {
    let tenant = state.tenants.get(&TenantId::default());
    let peer = request.extensions().get::<Peer>();
    let client = super::client_key(peer.map(|Peer(address)| address.ip()));
    Ok(Caller {
        tenant: tenant.ok_or(ApiError::Unauthenticated)?,
        credential: Credential(None),
        key_scope: client.clone(),
        client,
    })
}

/// The one token of a request; a header that is there twice is none.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| token.trim_matches(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_sent_once_and_as_a_bearer() {
        for (values, expected) in [
            (&["Bearer abc"][..], Some("abc")),
            (&["bearer  abc "], Some("abc")),
            (&["BEARER abc"], Some("abc")),
            (&[], None),
            (&["abc"], None),
            (&["Bearer"], None),
            (&["Basic abc"], None),
            (&["Bearer abc", "Bearer abc"], None),
            (&["Bearer \u{e9}"], None),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                let value = axum::http::HeaderValue::from_bytes(value.as_bytes()).unwrap();
                headers.append(AUTHORIZATION, value);
            }
            assert_eq!(bearer(&headers), expected, "{values:?}");
        }
    }
}
