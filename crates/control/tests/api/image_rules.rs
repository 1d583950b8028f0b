//! Who may replace, count and see which images.

use crate::server::{Server, text, until};
use axum::body::Body;
use futures_util::{StreamExt, stream};
use http::{Method, Request};
use serde_json::{Value, json};
use std::io;
use tokio::sync::oneshot;
use warren_control::{BuildRoom, Config};
use warren_testkit::node::SimNode;

const BUILD: &str = "/api/v1/images/build";

/// Pushes from a registry; answers when the build is over.
async fn push(server: &Server, key: &str, body: Value) -> Value {
    let asked = server.call_as(key, Method::POST, BUILD, body).await.ok();
    let path = format!("{BUILD}/{}", text(&asked["build_id"]));
    until("the build is over", || async {
        let state = server.call_as(key, Method::GET, &path, Value::Null).await.ok();
        ["COMPLETED", "FAILED", "CANCELLED"].contains(&state["status"].as_str().unwrap()).then_some(state)
    })
    .await
}

#[tokio::test]
async fn an_image_of_a_team_is_replaced_by_who_made_it_or_an_administrator() {
    let server = Server::start(SimNode::default()).await;
    let team = text(&server.post("/api/v1/admin/teams", json!({"slug": "lab"})).await.ok()["teamId"]);
    let mut keys = Vec::new();
    for (slug, role) in [("maker", "member"), ("other", "member"), ("head", "admin")] {
        let (id, key) = server.user(slug).await;
        let body = json!({"user_id": id, "role": role});
        server.post(&format!("/api/v1/teams/{team}/members"), body).await.ok();
        keys.push(key);
    }
    let build = |visibility| json!({"source_image": "ghcr.io/o/app:v1", "team_id": team, "visibility": visibility});
    push(&server, &keys[0], build("PRIVATE")).await;
    let refused = server.call_as(&keys[1], Method::POST, BUILD, build("PUBLIC")).await;
    assert_eq!(refused.refusal(), (403, "forbidden"));
    for key in [&keys[0], &keys[2], &server.key] {
        assert_eq!(push(&server, key, build("PRIVATE")).await["status"], "COMPLETED");
    }
    let list = server.call_as(&keys[1], Method::GET, &format!("/api/v1/images?teamId={team}"), Value::Null).await.ok();
    assert_eq!((&list["totalCount"], &list["data"][0]["visibility"]), (&json!(1), &json!("PRIVATE")));
}

#[tokio::test]
async fn docker_hub_does_not_replace_what_an_administrator_put_there() {
    let server = Server::start(SimNode::default()).await;
    let (_, key) = server.user("other").await;
    let hub = json!({"source_image": "base:1"});
    let ours =
        json!({"source_image": "ghcr.io/o/base:1", "owner_scope": "platform", "image_name": "base", "image_tag": "1"});
    server.node.set_digest("base:1", "sha256:1");
    for _ in 0..2 {
        assert_eq!(push(&server, &key, hub.clone()).await["status"], "COMPLETED", "anyone may push it again");
    }
    let fixed = json!({"source_image": format!("base:1@sha256:{}", "0".repeat(64))});
    let elsewhere = server.call_as(&key, Method::POST, BUILD, fixed).await;
    assert_eq!(elsewhere.refusal(), (422, "invalid_request"), "a tag leads where Docker Hub says");
    assert_eq!(push(&server, &server.key, ours).await["status"], "COMPLETED");
    let again = || server.call_as(&key, Method::POST, BUILD, hub.clone());
    assert_eq!(again().await.refusal(), (403, "forbidden"));
    assert_eq!(server.create(json!({"docker_image": "base:1"})).await["imageDigest"], "sha256:5151");
    assert_eq!(push(&server, &server.key, hub.clone()).await["digest"], "sha256:1", "an administrator may");
    assert_eq!(again().await.refusal(), (403, "forbidden"), "and it stays his");

    // So is what was promoted.
    push(&server, &server.key, json!({"source_image": "ghcr.io/o/tool:1"})).await;
    let promote = json!([{"source": {"reference": "prime/owner/tool:1"}, "set": {"owner": {"type": "platform"}}}]);
    let body = json!({"mode": "explicit", "updates": promote});
    assert_eq!(server.call(Method::PATCH, "/api/v1/images", body).await.ok()["success"], true);
    let refused = server.call_as(&key, Method::POST, BUILD, json!({"source_image": "tool:1"})).await;
    assert_eq!(refused.refusal(), (403, "forbidden"));
}

#[tokio::test]
async fn what_docker_hub_still_gives_does_not_go_over_an_administrators_build() {
    let at_once = BuildRoom { total: 0, per_owner: 0 };
    let server = Server::with(SimNode::default(), Config { builds_at_once: at_once, ..Config::default() }).await;
    server
        .post("/api/v1/images/import", json!({"path": server.dir.path(), "name": "prime/_server/builder:1"}))
        .await
        .ok();
    let (_, key) = server.user("other").await;
    let hub = server.call_as(&key, Method::POST, BUILD, json!({"source_image": "base:1"})).await.ok();
    let dockerfile = json!({"image_name": "base", "image_tag": "1", "owner_scope": "platform"});
    server.post(BUILD, dockerfile).await.ok();
    let state =
        server.call_as(&key, Method::GET, &format!("{BUILD}/{}", text(&hub["build_id"])), Value::Null).await.ok();
    assert_eq!(state["status"], "CANCELLED");
}

#[tokio::test]
async fn what_comes_from_docker_hub_and_what_is_moved_counts_too() {
    let config = Config { images_per_owner_max: Some(1), ..Config::default() };
    let server = Server::with(SimNode::default(), config).await;
    let (_, key) = server.user("other").await;
    for _ in 0..2 {
        push(&server, &key, json!({"source_image": "base:1"})).await;
    }
    let more = server.call_as(&key, Method::POST, BUILD, json!({"source_image": "base:2"})).await;
    assert_eq!(more.refusal(), (429, "limit_reached"));
    for tag in ["base:2", "base:3"] {
        push(&server, &server.key, json!({"source_image": tag})).await;
    }

    let team = text(&server.post("/api/v1/admin/teams", json!({"slug": "lab"})).await.ok()["teamId"]);
    let mut outcomes = Vec::new();
    for name in ["a", "b"] {
        push(&server, &server.key, json!({"source_image": format!("ghcr.io/o/{name}:1")})).await;
        let set = json!({"owner": {"type": "team", "teamId": team}});
        let updates = json!([{"source": {"reference": format!("prime/owner/{name}:1")}, "set": set}]);
        let body = json!({"mode": "explicit", "updates": updates});
        let answer = server.call(Method::PATCH, "/api/v1/images", body).await.ok();
        outcomes.push(text(&answer["results"][0]["error"].get("code").cloned().unwrap_or(json!("done"))));
    }
    assert_eq!(outcomes, ["done", "limit_reached"]);
}

#[tokio::test]
async fn a_repeated_create_is_the_first_sandbox_though_its_tag_is_gone() {
    let server = Server::start(SimNode::default()).await;
    push(&server, &server.key, json!({"source_image": "ghcr.io/o/app:v1"})).await;
    let body = json!({"docker_image": "prime/owner/app:v1", "idempotency_key": "once"});
    let first = server.create(body.clone()).await;
    server.call(Method::DELETE, "/api/v1/images/app/v1", Value::Null).await.ok();
    assert_eq!(server.create(body).await["id"], first["id"]);
    let other = json!({"name": "other", "docker_image": "prime/owner/app:v1", "idempotency_key": "once"});
    assert_eq!(server.post("/api/v1/sandbox", other).await.refusal(), (409, "idempotency_conflict"));
}

#[tokio::test]
async fn a_cancel_amid_an_upload_is_a_conflict_and_leaves_nothing() {
    let server = Server::start(SimNode::default()).await;
    server
        .post("/api/v1/images/import", json!({"path": server.dir.path(), "name": "prime/_server/builder:1"}))
        .await
        .ok();
    let asked = server.post(BUILD, json!({"image_name": "app"})).await.ok();
    let (id, url) = (text(&asked["build_id"]), text(&asked["upload_url"]));
    let (go_on, rest) = oneshot::channel::<()>();
    let first = stream::iter([Ok::<_, io::Error>("first")]);
    let parts = first.chain(stream::once(async {
        rest.await.map_err(io::Error::other)?;
        Ok("rest")
    }));
    let path = url.strip_prefix("http://warren.test:8080").unwrap();
    let request = Request::put(path).header("host", "warren.test:8080").body(Body::from_stream(parts)).unwrap();
    let folder = server.dir.path().join("builds").join(&id);
    let cancel = async {
        until("the first part is there", || async { folder.join("context.part").exists().then_some(()) }).await;
        server.post(&format!("{BUILD}/{id}/cancel"), json!({})).await.ok();
        go_on.send(()).unwrap();
    };
    let (answer, ()) = tokio::join!(server.send(request), cancel);
    assert_eq!(answer.refusal(), (409, "conflict"));
    for file in ["context.part", "context.tar.gz"] {
        assert!(!folder.join(file).exists(), "{file}");
    }
}
