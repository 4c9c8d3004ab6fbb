//! Every route in one table, with what it needs. A route is served because it is in the table, and
//! nothing is served that says nothing about who may use it.

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodRouter, get, post};

use super::error::ApiError;
use super::identity::{Access, Guard, guard};
use super::origin::{self, Doorkeeper};
use super::{ApiState, health, layers, metrics, runs, settings};
use crate::auth::Role;

/// How a route is asked. The replaced system answers `HEAD` nowhere, and so does this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Get,
    Post,
}

/// One route.
struct Route {
    verb: Verb,
    path: &'static str,
    access: Access,
    handler: fn() -> MethodRouter<ApiState>,
}

const fn route(
    verb: Verb,
    path: &'static str,
    access: Access,
    handler: fn() -> MethodRouter<ApiState>,
) -> Route {
    Route {
        verb,
        path,
        access,
        handler,
    }
}

const READ: Access = Access::Needs(Role::Read);
const SUBMIT: Access = Access::Needs(Role::Submit);
const ADMIN: Access = Access::Needs(Role::Admin);

/// All there is. Tests go through it by [`routes`], so that none is forgotten.
const ROUTES: [Route; 13] = [
    route(Verb::Get, "/health", Access::Open, || get(health::health)),
    route(Verb::Get, "/live", Access::Open, || get(health::live)),
    route(Verb::Get, "/ready", READ, || get(health::ready)),
    route(Verb::Get, "/metrics", ADMIN, || get(metrics::metrics)),
    route(Verb::Get, "/settings", ADMIN, || get(settings::settings)),
    route(Verb::Get, "/runs", READ, || get(runs::list)),
    route(Verb::Post, "/runs", SUBMIT, || post(runs::create)),
    route(Verb::Get, "/runs/{run_id}", READ, || get(runs::show)),
    route(Verb::Get, "/runs/{run_id}/episodes", READ, || {
        get(runs::episodes)
    }),
    route(Verb::Get, "/runs/{run_id}/artifacts", READ, || {
        get(runs::artifacts)
    }),
    route(Verb::Get, "/runs/{run_id}/events", READ, || {
        get(runs::events)
    }),
    route(Verb::Get, "/runs/{run_id}/receipt", READ, || {
        get(runs::receipt)
    }),
    route(Verb::Post, "/runs/{run_id}/cancel", SUBMIT, || {
        post(runs::cancel)
    }),
];

/// The whole interface, to be served or called without a socket.
pub fn router(state: ApiState) -> Router {
    let doorkeeper = Arc::new(Doorkeeper::new(&state.config));
    let mut router = Router::new();
    let mut paths: Vec<&'static str> = ROUTES.iter().map(|route| route.path).collect();
    paths.dedup();
    for path in paths {
        router = router.route(path, at(path, &state));
    }
    behind(router, doorkeeper, state)
}

/// Routes behind what every request passes, whichever listener it came to.
fn behind(router: Router<ApiState>, doorkeeper: Arc<Doorkeeper>, state: ApiState) -> Router {
    router
        .fallback(async || ApiError::NotFound)
        .layer(from_fn(layers::answer_panics))
        .layer(from_fn_with_state(doorkeeper, origin::check))
        .layer(from_fn(layers::log_failures))
        .layer(from_fn(layers::set_headers))
        .with_state(state)
}

/// What a Prometheus of the same host reads without a token, on a listener of its own (security.md row
/// 78): the metrics, and whether the process answers.
pub fn metrics_router(state: ApiState) -> Router {
    // A page in a browser on this host gets here by no name, token or not.
    let doorkeeper = Arc::new(Doorkeeper::of_loopback());
    let router = Router::new()
        .route("/metrics", get(metrics::metrics).head(refuse("GET")))
        .route("/live", get(health::live).head(refuse("GET")))
        .method_not_allowed_fallback(refuse("GET"));
    behind(router, doorkeeper, state)
}

/// All that the table has at a path, each behind its guard.
fn at(path: &str, state: &ApiState) -> MethodRouter<ApiState> {
    let mut all = MethodRouter::new();
    let mut verbs = Vec::new();
    for route in ROUTES.iter().filter(|route| route.path == path) {
        let before = Guard {
            state: state.clone(),
            access: route.access,
        };
        let handler = (route.handler)();
        all = all.merge(handler.route_layer(from_fn_with_state(before, guard)));
        verbs.push(route.verb);
    }
    let allow = match (verbs.contains(&Verb::Get), verbs.contains(&Verb::Post)) {
        (true, true) => "GET, POST",
        (true, false) => "GET",
        (false, _) => "POST",
    };
    let all = all.fallback(refuse(allow));
    if verbs.contains(&Verb::Get) {
        // Otherwise GET's handler would answer it.
        all.head(refuse(allow))
    } else {
        all
    }
}

fn refuse(allow: &'static str) -> impl Handler<((),), ApiState> {
    async move || ApiError::MethodNotAllowed { allow }
}

/// A route as others see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteEntry {
    /// How it is asked.
    pub method: &'static str,
    /// Its path, with the names of its parameters.
    pub path: &'static str,
    /// The least role that it needs; `None`: not even a token.
    pub needs: Option<Role>,
}

/// The table, for whoever has to go through all of it: tests, and documents.
#[must_use]
pub fn routes() -> Vec<RouteEntry> {
    let entry = |route: &Route| RouteEntry {
        method: match route.verb {
            Verb::Get => "GET",
            Verb::Post => "POST",
        },
        path: route.path,
        needs: match route.access {
            Access::Open => None,
            Access::Needs(role) => Some(role),
        },
    };
    ROUTES.iter().map(entry).collect()
}
