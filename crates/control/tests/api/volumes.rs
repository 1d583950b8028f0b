//! Volumes without machines: names, scopes, pages, what a create makes of them, what a delete refuses.

use crate::server::{Server, id, request, text};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use warren_testkit::node::SimNode;

const VOLUMES: &str = "/api/v1/sandbox/volumes";

impl Server {
    async fn volume(&self, name: &str) -> Value {
        self.post(VOLUMES, json!({ "name": name })).await.ok()
    }
}

#[tokio::test]
async fn a_volume_may_be_named_like_a_route_or_with_a_slash() {
    let server = Server::start(SimNode::default()).await;
    for (name, path) in [("logs", "logs"), ("auth", "auth"), ("a/b", "a%2Fb"), ("status:batchGet", "")] {
        let made = server.post(VOLUMES, json!({ "name": name })).await;
        if path.is_empty() {
            assert_eq!(made.refusal(), (422, "invalid_request"), "a colon ends the name in the clients");
            continue;
        }
        let made = made.ok();
        assert_eq!(
            (&made["name"], &made["occupied_bytes"], &made["head_checkpoint_id"]),
            (&json!(name), &json!(0), &Value::Null)
        );
        let path = format!("{VOLUMES}/{path}");
        let got = server.get(&path).await.ok();
        assert_eq!((&got["id"], &got["account_storage_used_bytes"]), (&made["id"], &json!(0)));
        assert_eq!(server.post(VOLUMES, json!({ "name": name })).await.refusal(), (409, "conflict"));
        // The static words come first for every method.
        assert_eq!(server.call(Method::PUT, &path, Value::Null).await.refusal(), (405, "method_not_allowed"));
        let deleted = server.call(Method::DELETE, &path, Value::Null).await;
        assert_eq!((deleted.status, deleted.body), (StatusCode::NO_CONTENT, Value::Null));
        assert_eq!(server.get(&path).await.refusal(), (404, "not_found"));
    }
}

#[tokio::test]
async fn lists_have_pages_and_scopes_of_their_own() {
    let server = Server::start(SimNode::default()).await;
    for name in ["c", "a", "b"] {
        server.volume(name).await;
    }
    let team = text(&server.post("/api/v1/admin/teams", json!({"slug": "crew"})).await.ok()["teamId"]);
    server.post(VOLUMES, json!({"name": "a", "team_id": team})).await.ok();
    let page = server.get(&format!("{VOLUMES}?page=2&per_page=2")).await.ok();
    assert_eq!(
        (&page["total"], &page["page"], &page["per_page"], &page["has_next"]),
        (&json!(3), &json!(2), &json!(2), &json!(false))
    );
    assert_eq!((&page["volumes"][0]["name"], &page["storage_used_bytes"]), (&json!("c"), &json!(0)));
    let of_team = server.get(&format!("{VOLUMES}?team_id={team}")).await.ok();
    assert_eq!(
        (&of_team["total"], &of_team["volumes"][0]["team_id"], &of_team["volumes"][0]["user_id"]),
        (&json!(1), &json!(team), &Value::Null)
    );
    let (member_id, member) = server.user("ann").await;
    let as_member = |method: Method, path: String| {
        let (server, member) = (&server, &member);
        async move { server.call_as(member, method, &path, Value::Null).await }
    };
    assert_eq!(as_member(Method::GET, format!("{VOLUMES}/a")).await.refusal(), (404, "not_found"));
    assert_eq!(as_member(Method::GET, format!("{VOLUMES}/a?team_id={team}")).await.refusal(), (403, "forbidden"));
    let path = format!("/api/v1/teams/{team}/members");
    server.post(&path, json!({"user_id": member_id, "role": "member"})).await.ok();
    as_member(Method::GET, format!("{VOLUMES}/a?team_id={team}")).await.ok();
    assert_eq!(as_member(Method::DELETE, format!("{VOLUMES}/a?team_id={team}")).await.refusal(), (403, "forbidden"));
}

#[tokio::test]
async fn a_sandbox_has_the_volumes_that_it_asks_for_or_is_not_made() {
    let server = Server::start(SimNode::default()).await;
    server.volume("data").await;
    let mounts =
        |name: &str, path: &str| request(json!({"volumes": [{"name": name, "mount_path": path, "read_only": true}]}));
    for (name, path, field) in [
        ("none", "/data", "name"),
        ("data", "data", "mount_path"),
        ("data", "/", "mount_path"),
        ("data", "/proc/x", "mount_path"),
    ] {
        let refused = server.post("/api/v1/sandbox", mounts(name, path)).await;
        assert_eq!(refused.refusal(), (422, "invalid_request"), "{name} {path}");
        assert_eq!(refused.body["detail"][0]["loc"], json!(["body", "volumes", 0, field]));
    }
    assert_eq!(server.get("/api/v1/sandbox").await.ok()["total"], 0);
    let made = server.post("/api/v1/sandbox", mounts("data", "/mnt//data/")).await.ok();
    let spec = server.node.spec(&id(&made)).unwrap();
    let [mount] = &spec.volumes[..] else { panic!("{:?}", spec.volumes) };
    assert_eq!((mount.path.as_str(), mount.read_only, &mount.base), ("/mnt/data", true, &None));
    // In use, then not any more.
    let path = format!("{VOLUMES}/data");
    let refused = server.call(Method::DELETE, &path, Value::Null).await;
    assert_eq!(refused.refusal(), (409, "volume_in_use"));
    assert!(text(&refused.body["detail"]).contains(&text(&made["id"])), "{refused:?}");
    server.delete(&text(&made["id"])).await.ok();
    assert_eq!(server.call(Method::DELETE, &path, Value::Null).await.status, StatusCode::NO_CONTENT);
}
