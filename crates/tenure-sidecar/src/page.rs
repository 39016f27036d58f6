//! The page: a few files inside the program, so that it needs no network and no build step.

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// Nothing from elsewhere, nothing inline, nobody frames it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

struct Asset {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

const ASSETS: &[Asset] = &[
    Asset { path: "/", kind: "text/html; charset=utf-8", text: include_str!("../page/index.html") },
    // For routers mounted below another path, where links relative to `/` would lead astray.
    Asset {
        path: "/index.html",
        kind: "text/html; charset=utf-8",
        text: include_str!("../page/index.html"),
    },
    Asset {
        path: "/page/style.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("../page/style.css"),
    },
    Asset { path: "/page/icon.svg", kind: "image/svg+xml", text: include_str!("../page/icon.svg") },
    Asset { path: "/page/main.js", kind: SCRIPT, text: include_str!("../page/main.js") },
    Asset { path: "/page/wire.js", kind: SCRIPT, text: include_str!("../page/wire.js") },
    Asset { path: "/page/clock.js", kind: SCRIPT, text: include_str!("../page/clock.js") },
    Asset { path: "/page/card.js", kind: SCRIPT, text: include_str!("../page/card.js") },
    Asset { path: "/page/election.js", kind: SCRIPT, text: include_str!("../page/election.js") },
    Asset { path: "/page/list.js", kind: SCRIPT, text: include_str!("../page/list.js") },
    Asset { path: "/page/members.js", kind: SCRIPT, text: include_str!("../page/members.js") },
    Asset { path: "/page/history.js", kind: SCRIPT, text: include_str!("../page/history.js") },
    Asset { path: "/page/ticks.js", kind: SCRIPT, text: include_str!("../page/ticks.js") },
    Asset { path: "/page/timeline.js", kind: SCRIPT, text: include_str!("../page/timeline.js") },
    Asset { path: "/page/dialog.js", kind: SCRIPT, text: include_str!("../page/dialog.js") },
    Asset { path: "/page/words.js", kind: SCRIPT, text: include_str!("../page/words.js") },
];

/// Whether a path leads to a file of the page, which tells nothing about any election.
pub(crate) fn is_asset(path: &str) -> bool {
    ASSETS.iter().any(|asset| asset.path == path)
}

pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    ASSETS.iter().fold(Router::new(), |router, asset| {
        router.route(asset.path, get(move || std::future::ready(serve(asset))))
    })
}

fn serve(asset: &Asset) -> Response {
    let headers = [
        (header::CONTENT_TYPE, asset.kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // A new version of the program brings a new page.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, asset.text).into_response()
}
