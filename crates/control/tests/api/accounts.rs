use crate::server::{Server, text};
use http::Method;
use serde_json::{Value, json};
use warren_testkit::node::SimNode;

#[tokio::test]
async fn whoami_teams_members_wallet() {
    let server = Server::start(SimNode::default()).await;
    let me = server.get("/api/v1/user/whoami").await.ok()["data"].clone();
    assert_eq!((&me["slug"], &me["scope"]["sandboxes"]), (&json!("owner"), &json!({"read": true, "write": true})));
    assert!(me["account_limits"]["vm_sandbox_limit"].is_u64());
    let mut teams = Vec::new();
    for slug in ["one", "two", "three"] {
        teams.push(text(&server.post("/api/v1/admin/teams", json!({"slug": slug, "name": slug})).await.ok()["teamId"]));
    }
    assert_eq!(server.post("/api/v1/admin/teams", json!({"slug": "one"})).await.refusal(), (409, "conflict"));
    let page = server.get("/api/v1/user/teams?offset=2&limit=2").await.ok();
    assert_eq!((&page["total_count"], page["data"].as_array().unwrap().len()), (&json!(3), 1));
    for key in ["teamId", "name", "slug", "role", "createdAt"] {
        assert!(page["data"][0][key].is_string(), "{key}");
    }
    let members = server.get(&format!("/api/v1/teams/{}/members", teams[0])).await.ok();
    assert_eq!((&members["data"][0]["userId"], &members["data"][0]["role"]), (&me["id"], &json!("admin")));
    assert_eq!(server.get("/api/v1/teams/cnosuch/members").await.refusal(), (403, "forbidden"));
    let wallet = server.get(&format!("/api/v1/billing/wallet?limit=20&offset=0&teamId={}", teams[0])).await.ok();
    assert_eq!((&wallet["balance_usd"], &wallet["recent_billings"]), (&json!(0.0), &json!([])));
    server.get(&format!("/api/v1/user/whoami?teamId={}", teams[0])).await.ok();
}

#[tokio::test]
async fn users_are_made_by_administrators() {
    let server = Server::start(SimNode::default()).await;
    let (_, key) = server.user("alice").await;
    assert_eq!(server.post("/api/v1/admin/users", json!({"slug": "alice"})).await.refusal(), (409, "conflict"));
    for bad in ["", "A", "-a", "a b", &"a".repeat(40)] {
        assert_eq!(server.post("/api/v1/admin/users", json!({"slug": bad})).await.status, 422, "{bad:?}");
    }
    for (path, body) in
        [("/api/v1/admin/users", json!({"slug": "eve"})), ("/api/v1/admin/teams", json!({"slug": "eve"}))]
    {
        assert_eq!(server.call_as(&key, Method::POST, path, body).await.refusal(), (403, "forbidden"));
    }
    let me = server.call_as(&key, Method::GET, "/api/v1/user/whoami", Value::Null).await.ok();
    assert_eq!(me["data"]["slug"], "alice");
}

#[tokio::test]
async fn secrets_go_in_and_never_come_out() {
    let server = Server::start(SimNode::default()).await;
    let (_, other) = server.user("other").await;
    let path = "/api/v1/secrets/";
    let made = server.post(path, json!({"name": "API_TOKEN", "value": "hunter2", "description": "d"})).await.ok();
    assert_eq!((&made["data"]["name"], &made["data"]["description"]), (&json!("API_TOKEN"), &json!("d")));
    assert_eq!(server.post(path, json!({"name": "API_TOKEN", "value": "x"})).await.refusal(), (409, "conflict"));
    for bad in [
        json!({"name": "lower", "value": "x"}),
        json!({"name": "A", "value": ""}),
        json!({"name": "A", "value": "?", "isFile": true}),
    ] {
        assert_eq!(server.post(path, bad.clone()).await.status, 422, "{bad}");
    }
    let one = format!("/api/v1/secrets/{}", text(&made["data"]["id"]));
    let changed = server.call(Method::PATCH, &one, json!({"value": "hunter3", "name": "NEW_NAME"})).await.ok();
    assert_eq!((&changed["data"]["name"], &changed["data"]["description"]), (&json!("NEW_NAME"), &json!("d")));
    let list = server.get(path).await.ok();
    assert_eq!(list["data"].as_array().unwrap().len(), 1);
    assert!(!list.to_string().contains("hunter"));
    assert_eq!(server.call_as(&other, Method::GET, &one, Value::Null).await.refusal(), (404, "not_found"));
    server.call(Method::DELETE, &one, Value::Null).await.ok();
    assert_eq!(server.call(Method::DELETE, &one, Value::Null).await.refusal(), (404, "not_found"));
}
