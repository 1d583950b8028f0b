use crate::server::{Server, id, request, text, until};
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;
use warren_testkit::node::{Life, SimNode};

#[tokio::test]
async fn a_deleted_sandbox_still_answers() {
    let server = Server::start(SimNode::default()).await;
    let made = text(&server.create(json!({})).await["id"]);
    for _ in 0..2 {
        assert_eq!(server.delete(&made).await.ok(), json!({"id": made, "status": "TERMINATED"}));
    }
    assert!(server.node.live().is_empty());
    let shown = server.sandbox(&made).await;
    assert_eq!((&shown["status"], &shown["errorType"]), (&json!("TERMINATED"), &Value::Null));
    assert!(shown["terminatedAt"].is_string() && shown["terminationReason"].is_string());
    let logs = server.get(&format!("/api/v1/sandbox/{made}/logs")).await.ok();
    assert!(text(&logs["logs"]).contains("simulated"));
    let context = server.get(&format!("/api/v1/sandbox/{made}/error-context")).await.ok();
    assert_eq!(context["status"], "TERMINATED");
    // The data plane is the one to say that it is gone.
    assert!(server.post(&format!("/api/v1/sandbox/{made}/auth"), Value::Null).await.ok()["token"].is_string());
    assert_eq!(server.delete("snosuchsandbox").await.refusal(), (404, "not_found"));
}

#[tokio::test]
async fn a_delete_beats_a_create_that_is_under_way() {
    let node = SimNode::new(|_| Life { accept: Duration::from_millis(400), ..Life::default() });
    let server = Server::start(node).await;
    let create = server.post("/api/v1/sandbox", request(json!({"labels": ["late"]})));
    let delete = async {
        let made = until("the sandbox is listed", || async {
            let list = server.get("/api/v1/sandbox?labels=late").await.ok();
            list["sandboxes"].get(0).map(|sandbox| text(&sandbox["id"]))
        })
        .await;
        server.delete(&made).await.ok()
    };
    let (created, deleted) = tokio::join!(create, delete);
    assert_eq!(deleted["status"], "TERMINATED");
    assert_eq!(created.ok()["status"], "TERMINATED");
    assert!(server.node.live().is_empty());
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_asked_again() {
    let server = Server::start(SimNode::default()).await;
    let made = text(&server.create(json!({})).await["id"]);
    server.node.fail_terminates(2);
    assert_eq!(server.delete(&made).await.ok()["status"], "TERMINATED");
    assert_eq!(server.node.live().len(), 1);
    until("the node has ended it", || async { server.node.live().is_empty().then_some(()) }).await;
}

#[tokio::test]
async fn many_by_id_by_label_and_by_user() {
    let server = Server::start(SimNode::default()).await;
    let mut ids = Vec::new();
    for n in 0..6 {
        ids.push(text(&server.create(json!({"labels": ["all", format!("n{}", n % 2)]})).await["id"]));
    }
    let bulk = |body: Value| server.call(Method::DELETE, "/api/v1/sandbox", body);
    let answer = bulk(json!({"sandbox_ids": [ids[0], "snosuchsandbox", "Bad/Id"], "all_users": false})).await.ok();
    assert_eq!(answer["succeeded"], json!([ids[0]]));
    assert_eq!(answer["failed"].as_array().unwrap().len(), 2);
    assert!(answer["failed"].as_array().unwrap().iter().all(|f| f["error"].is_string() && f["sandbox_id"].is_string()));
    let answer = bulk(json!({"labels": ["all", "n1"], "all_users": false})).await.ok();
    assert_eq!(answer["succeeded"].as_array().unwrap().len(), 3);
    let me = text(&server.get("/api/v1/user/whoami").await.ok()["data"]["id"]);
    let answer = bulk(json!({"user_id": me, "all_users": false})).await.ok();
    assert_eq!((answer["succeeded"].as_array().unwrap().len(), &answer["failed"]), (2, &json!([])));
    assert!(server.node.live().is_empty());
    assert_eq!(bulk(json!({"all_users": false})).await.refusal(), (422, "invalid_request"));
    assert_eq!(bulk(Value::Null).await.refusal(), (422, "invalid_request"));
}

#[tokio::test]
async fn others_are_for_administrators() {
    let server = Server::start(SimNode::default()).await;
    let (theirs_id, theirs) = server.user("other").await;
    let own = server.create(json!({})).await;
    let me = text(&server.get("/api/v1/user/whoami").await.ok()["data"]["id"]);
    for body in [json!({"all_users": true}), json!({"user_id": me})] {
        assert_eq!(
            server.call_as(&theirs, Method::DELETE, "/api/v1/sandbox", body).await.refusal(),
            (403, "forbidden")
        );
    }
    server.call_as(&theirs, Method::POST, "/api/v1/sandbox", request(json!({}))).await.ok();
    let by_id = json!({"sandbox_ids": [own["id"]]});
    let answer = server.call_as(&theirs, Method::DELETE, "/api/v1/sandbox", by_id).await.ok();
    assert_eq!((&answer["succeeded"], answer["failed"].as_array().unwrap().len()), (&json!([]), 1));
    assert!(server.node.live().contains(&id(&own)));
    let of_user = server.call(Method::DELETE, "/api/v1/sandbox", json!({"user_id": theirs_id})).await.ok();
    assert_eq!(of_user["succeeded"].as_array().unwrap().len(), 1);
    let all = server.call(Method::DELETE, "/api/v1/sandbox", json!({"all_users": true})).await.ok();
    assert_eq!(all["succeeded"], json!([own["id"]]));
}
