//! Forks, snapshots, resets and templates of that server.

use super::{Shared, sandbox};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/sandbox/{id}/fork", post(async || Json(forked())))
        .route("/sandbox/{id}/snapshots", post(async || Json(snapshot())).get(async || Json(snapshots())))
        .route("/sandbox/{id}/reset", post(reset))
        .route("/sandbox/{id}/pause", post(async || Json(sandbox("PAUSED", "debian:12"))))
        .route("/snapshots", get(async || Json(snapshots())))
        .route("/snapshots/{id}/fork", post(async || Json(forked())))
        .route("/snapshots/{id}", delete(async |Path(id): Path<String>| gone_or(&id, "n1")))
        .route("/templates", post(async || Json(template("MAKING"))))
        .route("/templates/{id}", get(template_later))
}

/// One that runs, and one that does not yet.
fn forked() -> Value {
    json!({"sandboxes": [sandbox("RUNNING", "debian:12"), sandbox("PENDING", "debian:12")]})
}

async fn reset(Json(request): Json<Value>) -> Response {
    if request["snapshot_id"] == "other" {
        let body = json!({"detail": "snapshot other is not ready", "code": "snapshot_not_ready"});
        return (StatusCode::CONFLICT, Json(body)).into_response();
    }
    let mut back = sandbox("RUNNING", "debian:12");
    back["generation"] = json!(3);
    Json(back).into_response()
}

fn snapshot() -> Value {
    json!({
        "id": "n1", "name": null, "sandboxId": "s1", "state": "READY", "dockerImage": "debian:12", "imageDigest": null, "cpuCores": 1.0,
        "memoryGB": 1.0, "diskSizeGB": 5.0, "hasSecrets": false, "pausedMs": 9.5, "storedBytes": 1024, "digest": null, "error": null,
        "userId": "u1", "teamId": null, "createdAt": "2026-01-01T00:00:00Z",
    })
}

fn snapshots() -> Value {
    json!({"snapshots": [snapshot()]})
}

fn template(state: &str) -> Value {
    json!({
        "id": "t1", "name": "warm", "state": state, "dockerImage": "debian:12", "imageDigest": null, "startCommand": null, "ready": null,
        "cpuCores": 1.0, "memoryGB": 1.0, "diskSizeGB": 5.0, "environmentVars": null, "error": "not ready within 1 s", "userId": "u1",
        "teamId": null, "createdAt": "2026-01-01T00:00:00Z", "usedAt": "2026-01-01T00:00:00Z",
    })
}

/// READY when asked for a second time; with a command `broken`, FAILED.
async fn template_later(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let seen = shared.seen.lock().expect("sound");
    let asked = seen.calls.iter().filter(|(call, ..)| call.ends_with("/templates/t1")).count();
    let broken = seen.calls.iter().any(|(_, _, body)| body.windows(6).any(|part| part == b"broken"));
    Json(template(match (asked, broken) {
        (1, _) => "MAKING",
        (_, true) => "FAILED",
        (_, false) => "READY",
    }))
}

fn gone_or(id: &str, known: &str) -> Response {
    if id == known {
        return Json(json!({ "id": id })).into_response();
    }
    (StatusCode::NOT_FOUND, Json(json!({"detail": format!("no snapshot {id}"), "code": "not_found"}))).into_response()
}
