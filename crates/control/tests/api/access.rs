use crate::server::{Server, request, text};
use http::Method;
use serde_json::{Value, json};
use warren_testkit::node::SimNode;

#[tokio::test]
async fn a_sandbox_is_its_makers_and_its_teams() {
    let server = Server::start(SimNode::default()).await;
    let (member_id, member) = server.user("member").await;
    let (_, stranger) = server.user("stranger").await;
    let team = text(&server.post("/api/v1/admin/teams", json!({"slug": "lab"})).await.ok()["teamId"]);
    assert!(team.len() == 25 && team.starts_with('c'));
    let add = json!({"user_id": member_id, "role": "member"});
    server.post(&format!("/api/v1/teams/{team}/members"), add).await.ok();

    let own = text(&server.create(json!({})).await["id"]);
    let shared = text(&server.create(json!({"team_id": team})).await["id"]);
    let see = |key: String, id: String| {
        let server = &server;
        async move { server.call_as(&key, Method::GET, &format!("/api/v1/sandbox/{id}"), Value::Null).await.status.as_u16() }
    };
    assert_eq!((see(member.clone(), own.clone()).await, see(member.clone(), shared.clone()).await), (403, 200));
    assert_eq!((see(stranger.clone(), own.clone()).await, see(stranger.clone(), shared.clone()).await), (403, 403));

    // Without a team the scope is personal.
    let total = |key: String, query: String| {
        let server = &server;
        async move {
            let answer = server.call_as(&key, Method::GET, &format!("/api/v1/sandbox?{query}"), Value::Null).await;
            (answer.status.as_u16(), answer.body["total"].as_u64())
        }
    };
    assert_eq!(total(server.key.clone(), String::new()).await, (200, Some(1)));
    assert_eq!(total(member.clone(), format!("team_id={team}")).await, (200, Some(1)));
    assert_eq!(total(stranger.clone(), format!("team_id={team}")).await, (403, None));
    let me = text(&server.get("/api/v1/user/whoami").await.ok()["data"]["id"]);
    assert_eq!(total(stranger.clone(), format!("user_id={me}")).await, (200, Some(0)));

    let into = request(json!({"team_id": team}));
    let denied = server.call_as(&stranger, Method::POST, "/api/v1/sandbox", into.clone()).await;
    assert_eq!(denied.refusal(), (403, "forbidden"));
    server.call_as(&member, Method::POST, "/api/v1/sandbox", into).await.ok();
    // A member is no administrator of the team; its maker is.
    let all = json!({"all_users": true, "team_id": team});
    let denied = server.call_as(&member, Method::DELETE, "/api/v1/sandbox", all.clone()).await;
    assert_eq!(denied.refusal(), (403, "forbidden"));
    let gone = server.call(Method::DELETE, "/api/v1/sandbox", all).await.ok();
    assert_eq!(gone["succeeded"].as_array().unwrap().len(), 2);
}

/// Every operation of the description but the open ones refuses a call without a key.
#[tokio::test]
async fn no_operation_is_open_by_mistake() {
    let server = Server::start(SimNode::default()).await;
    let description = server.get("/openapi.json").await.ok();
    let mut operations = 0;
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            operations += 1;
            let open = operation["security"] == json!([{}]);
            let path = path.replace("{id}", "snosuchsandbox");
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let answer = server.call_as("", method.clone(), &path, Value::Null).await;
            let by_other_token = path.ends_with("/auth_challenge/status");
            assert_eq!(answer.status == 401, !open && !by_other_token, "{method} {path}: {answer:?}");
        }
    }
    assert!(operations >= 30, "{operations}");
}

#[tokio::test]
async fn wrong_keys() {
    let server = Server::start(SimNode::default()).await;
    for key in ["wrong", &format!("{}x", server.key), &"x".repeat(10_000)] {
        let answer = server.call_as(key, Method::GET, "/api/v1/user/whoami", Value::Null).await;
        assert_eq!(answer.refusal(), (401, "unauthorized"));
        assert!(answer.body["detail"].is_string());
    }
}
