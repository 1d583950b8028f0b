use crate::server::{Answer, Server, id, text, until};
use http::Method;
use serde_json::{Value, json};
use warren_model::CheckpointId;
use warren_proto::node::{CheckpointState, NodeApi as _};
use warren_testkit::node::SimNode;

async fn asked(server: &Server, sandbox: &Value) -> Answer {
    server.post(&format!("/api/v1/sandbox/{}/checkpoints", text(&sandbox["id"])), Value::Null).await
}

async fn made(server: &Server, sandbox: &Value) -> CheckpointId {
    CheckpointId::parse(&text(&asked(server, sandbox).await.ok()["id"])).unwrap()
}

async fn durable(server: &Server, sandbox: &Value) -> CheckpointId {
    let id = made(server, sandbox).await;
    server.node.set_checkpoint(&id, SimNode::durable());
    until_state(server, &id, "DURABLE").await;
    id
}

async fn until_state(server: &Server, id: &CheckpointId, state: &str) -> Value {
    let path = format!("/api/v1/sandbox/checkpoints/{id}");
    until(&format!("{id} is {state}"), || async {
        let shown = server.get(&path).await.ok();
        (shown["state"] == state).then_some(shown)
    })
    .await
}

async fn delete(server: &Server, id: &CheckpointId) -> Answer {
    server.call(Method::DELETE, &format!("/api/v1/sandbox/checkpoints/{id}"), Value::Null).await
}

#[tokio::test]
async fn a_checkpoint_is_pending_then_durable_and_a_sandbox_starts_from_it() {
    let server = Server::start(SimNode::default()).await;
    let source = server.create(json!({})).await;
    let first = asked(&server, &source).await.ok();
    assert_eq!(
        (&first["state"], &first["depth"], &first["docker_image"]),
        (&json!("PENDING"), &json!(0), &json!("busybox"))
    );
    let id = CheckpointId::parse(&text(&first["id"])).unwrap();
    let from = json!({"name": "r", "checkpoint_id": id.as_str()});
    assert_eq!(server.post("/api/v1/sandbox", from.clone()).await.refusal(), (409, "checkpoint_not_ready"));
    server.node.set_checkpoint(&id, SimNode::durable());
    let shown = until_state(&server, &id, "DURABLE").await;
    assert_eq!((&shown["disk_size_bytes"], &shown["occupied_bytes"]), (&json!(5u64 << 30), &json!(3 << 20)));

    let child = server.post("/api/v1/sandbox", from).await.ok();
    assert_eq!((&child["dockerImage"], &child["diskSizeGB"]), (&json!("busybox"), &json!(5.0)));
    let spec = server.node.spec(&crate::server::id(&child)).unwrap();
    let digest = format!("sha256:{}", "5".repeat(64));
    assert_eq!((spec.image, spec.disk_mib), (format!("prime/_checkpoint/{id}@{digest}"), 0));
    let second = asked(&server, &child).await.ok();
    assert_eq!((&second["parent_id"], &second["depth"]), (&json!(id.as_str()), &json!(1)));
}

#[tokio::test]
async fn only_what_runs_has_a_disk_to_freeze() {
    let server = Server::start(SimNode::default()).await;
    let source = server.create(json!({})).await;
    let sandbox = text(&source["id"]);
    // The store does not know yet that the node has lost it.
    server.node.set_mute(true);
    server.node.end(&id(&source), warren_model::EndReason::VmmDied, "as scripted");
    assert_eq!(asked(&server, &source).await.refusal(), (409, "not_running"));
    server.node.set_mute(false);
    server.delete(&sandbox).await.ok();
    assert_eq!(asked(&server, &source).await.refusal(), (409, "not_running"));
    let list = server.get(&format!("/api/v1/sandbox/{sandbox}/checkpoints")).await.ok();
    assert_eq!(list["checkpoints"], json!([]), "nothing is left of what was refused");
}

#[tokio::test]
async fn pending_ones_and_the_newest_of_a_live_sandbox_are_not_deleted() {
    let server = Server::start(SimNode::default()).await;
    let source = server.create(json!({})).await;
    let sandbox = text(&source["id"]);
    let first = durable(&server, &source).await;
    let second = made(&server, &source).await;
    assert_eq!(delete(&server, &second).await.refusal(), (409, "checkpoint_in_use"));
    server.node.set_checkpoint(&second, SimNode::durable());
    until_state(&server, &second, "DURABLE").await;
    let all = format!("/api/v1/sandbox/{sandbox}/checkpoints");
    let answer = server.call(Method::DELETE, &all, Value::Null).await.ok();
    assert_eq!(answer["deleted"], json!([first.as_str()]));
    assert_eq!(answer["errors"][0]["code"], "CONFLICT");
    assert_eq!(delete(&server, &first).await.status.as_u16(), 200, "twice is as good as once");
    assert_eq!(server.get(&format!("/api/v1/sandbox/checkpoints/{first}")).await.refusal(), (404, "not_found"));
    server.delete(&sandbox).await.ok();
    assert_eq!(server.get(&all).await.ok()["checkpoints"].as_array().unwrap().len(), 1, "it outlives its sandbox");
    delete(&server, &second).await.ok();
    assert!(server.node.checkpoints().is_empty());
    let from = json!({"name": "r", "checkpoint_id": second.as_str()});
    let refused = server.post("/api/v1/sandbox", from).await;
    assert_eq!(refused.refusal(), (404, "not_found"));
    assert!(text(&refused.body["detail"]).contains("deleted"));
}

#[tokio::test]
async fn bytes_stay_while_a_sandbox_waits_for_them() {
    let server = Server::start(SimNode::default()).await;
    let source = server.create(json!({})).await;
    let first = durable(&server, &source).await;
    durable(&server, &source).await;
    server.node.set_capacity(Some(1));
    let from = json!({"name": "r", "checkpoint_id": first.as_str()});
    let child = server.post("/api/v1/sandbox", from).await.ok();
    assert_eq!(child["status"], "PENDING");
    delete(&server, &first).await.ok();
    assert!(server.node.checkpoints().iter().any(|(id, _)| *id == first), "the node keeps it");
    server.node.set_capacity(None);
    server.until_status(&text(&child["id"]), "RUNNING").await;
    server.delete(&text(&child["id"])).await.ok();
    until("it goes after its last sandbox", || async {
        (!server.node.checkpoints().iter().any(|(id, _)| *id == first)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_restart_finds_out_what_became_of_them() {
    let server = Server::start(SimNode::default()).await;
    let source = server.create(json!({})).await;
    let [durable, failed, lost] =
        [made(&server, &source).await, made(&server, &source).await, made(&server, &source).await];
    server.app.shutdown().await;
    server.node.set_checkpoint(&durable, SimNode::durable());
    server.node.set_checkpoint(&failed, CheckpointState::Failed { problem: "as scripted".to_owned() });
    server.node.remove_checkpoint(&lost).await.unwrap();
    let server = server.restart().await;
    until_state(&server, &durable, "DURABLE").await;
    assert_eq!(until_state(&server, &failed, "FAILED").await["error"], "as scripted");
    assert!(text(&until_state(&server, &lost, "FAILED").await["error"]).contains("restarted"));
    let from = json!({"name": "r", "checkpoint_id": failed.as_str()});
    let refused = server.post("/api/v1/sandbox", from).await;
    assert_eq!(refused.refusal(), (409, "checkpoint_not_ready"));
    assert!(text(&refused.body["detail"]).contains("as scripted"));
}

#[tokio::test]
async fn they_are_shown_to_who_may_use_the_sandbox() {
    let server = Server::start(SimNode::default()).await;
    let source = server.create(json!({})).await;
    let id = durable(&server, &source).await;
    let (_, stranger) = server.user("stranger").await;
    let batch = json!({"checkpoint_ids": [id.as_str(), "knone"]});
    let got = server.post("/api/v1/sandbox/checkpoints:batchGet", batch.clone()).await.ok();
    assert_eq!(
        (&got["checkpoints"][0]["id"], &got["errors"][0]["checkpoint_id"]),
        (&json!(id.as_str()), &json!("knone"))
    );
    let got = server.call_as(&stranger, Method::POST, "/api/v1/sandbox/checkpoints:batchGet", batch).await.ok();
    assert_eq!(got["checkpoints"], json!([]));
    assert!(got["errors"].as_array().unwrap().iter().all(|error| error["code"] == "NOT_FOUND"));
    let from = json!({"name": "r", "checkpoint_id": id.as_str()});
    let paths = [
        (Method::GET, format!("/api/v1/sandbox/checkpoints/{id}"), Value::Null),
        (Method::DELETE, format!("/api/v1/sandbox/checkpoints/{id}"), Value::Null),
        (Method::GET, format!("/api/v1/sandbox/{}/checkpoints", text(&source["id"])), Value::Null),
        (Method::POST, format!("/api/v1/sandbox/{}/checkpoints", text(&source["id"])), Value::Null),
        (Method::POST, "/api/v1/sandbox".to_owned(), from),
    ];
    for (method, path, body) in paths {
        let refused = server.call_as(&stranger, method, &path, body).await;
        assert_eq!(refused.refusal(), (403, "forbidden"), "{path}");
    }
}
