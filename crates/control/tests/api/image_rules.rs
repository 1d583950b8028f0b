//! Who may replace, count and see which images.

use crate::server::{Server, text, until};
use http::Method;
use serde_json::{Value, json};
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
