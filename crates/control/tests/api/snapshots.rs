use crate::server::{Server, text, until};
use http::Method;
use serde_json::{Value, json};
use warren_model::{SandboxId, SnapshotId};
use warren_proto::node::NodeApi;
use warren_testkit::node::SimNode;

fn path(rest: &str) -> String {
    format!("/api/v1{rest}")
}

async fn snapshots_of_node(server: &Server) -> Vec<SnapshotId> {
    server.node.snapshots().await.into_iter().map(|info| info.id).collect()
}

#[tokio::test]
async fn a_snapshot_is_taken_shown_forked_and_deleted() {
    let server = Server::start(SimNode::default()).await;
    let source =
        server.create(json!({"labels": ["a"], "environment_vars": {"E": "1"}, "secrets": {"S": "hidden"}})).await;
    let source = text(&source["id"]);
    let taken = server.post(&path(&format!("/sandbox/{source}/snapshots")), json!({"name": "first"})).await.ok();
    assert_eq!(
        (&taken["name"], &taken["state"], &taken["hasSecrets"]),
        (&json!("first"), &json!("READY"), &json!(true))
    );
    assert!(!taken.to_string().contains("hidden"));
    let id = text(&taken["id"]);
    assert_eq!(server.get(&path(&format!("/snapshots/{id}"))).await.ok()["sandboxId"], json!(source));
    assert_eq!(server.get(&path("/snapshots")).await.ok()["snapshots"].as_array().unwrap().len(), 1);

    server.delete(&source).await.ok();
    let body = json!({"count": 2, "environment_vars": {"F": "2"}, "secrets": {"T": "new"}});
    let forked = server.post(&path(&format!("/snapshots/{id}/fork")), body).await.ok();
    let forks = forked["sandboxes"].as_array().unwrap();
    assert_eq!(forks.len(), 2);
    for fork in forks {
        assert_eq!(
            (&fork["snapshotId"], &fork["status"], &fork["labels"]),
            (&json!(id), &json!("RUNNING"), &json!(["a"]))
        );
        assert_eq!(
            (&fork["environmentVars"], &fork["secrets"]),
            (&json!({"E": "1", "F": "2"}), &json!({"S": "***", "T": "***"}))
        );
        let spec = server.node.spec(&SandboxId::parse(&text(&fork["id"])).unwrap()).unwrap();
        assert_eq!((spec.secrets["S"].as_str(), spec.secrets["T"].as_str()), ("hidden", "new"));
        assert_eq!(spec.snapshot.unwrap().as_str(), id);
    }
    let dropped = server.post(&path(&format!("/snapshots/{id}/fork")), json!({"secrets_policy": "drop"})).await.ok();
    // Empty, and not absent: its memory may hold what it was not given.
    assert_eq!(dropped["sandboxes"][0]["secrets"], json!({}));

    server.call(Method::DELETE, &path(&format!("/snapshots/{id}")), Value::Null).await.ok();
    assert_eq!(server.get(&path(&format!("/snapshots/{id}"))).await.refusal(), (404, "not_found"));
    assert!(snapshots_of_node(&server).await.is_empty());
}

#[tokio::test]
async fn a_fork_leaves_no_snapshot_of_its_own() {
    let server = Server::start(SimNode::default()).await;
    let source = text(&server.create(json!({})).await["id"]);
    let forked = server.post(&path(&format!("/sandbox/{source}/fork")), json!({"count": 3, "name": "kid"})).await.ok();
    assert!(forked["sandboxes"].as_array().unwrap().iter().all(|fork| fork["name"] == "kid"));
    assert!(server.get(&path("/snapshots")).await.ok()["snapshots"].as_array().unwrap().is_empty());
    until("the snapshot has gone", || async { snapshots_of_node(&server).await.is_empty().then_some(()) }).await;
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_by_name_and_leaves_nothing() {
    let server = Server::start(SimNode::default()).await;
    let (_, stranger) = server.user("stranger").await;
    let sandbox = text(&server.create(json!({})).await["id"]);
    let at = |rest: &str| path(&format!("/sandbox/{sandbox}/{rest}"));
    for (rest, body, wanted) in [
        ("fork", json!({"count": 0}), (422, "invalid_request")),
        ("fork", json!({"count": 257}), (422, "invalid_request")),
        ("fork", json!({"name": ""}), (422, "invalid_request")),
        ("fork", json!({"secrets_policy": "some"}), (422, "invalid_body")),
        ("snapshots", json!({"name": "a\nb"}), (422, "invalid_request")),
        ("reset", json!({}), (404, "not_found")),
        ("reset", json!({"snapshot_id": "../x"}), (404, "not_found")),
    ] {
        assert_eq!(server.post(&at(rest), body.clone()).await.refusal(), wanted, "{rest} {body}");
    }
    assert!(snapshots_of_node(&server).await.is_empty());
    let taken = text(&server.post(&at("snapshots"), json!({})).await.ok()["id"]);
    for (method, rest) in [(Method::GET, ""), (Method::DELETE, ""), (Method::POST, "/fork")] {
        let denied = server.call_as(&stranger, method, &path(&format!("/snapshots/{taken}{rest}")), json!({})).await;
        assert_eq!(denied.refusal(), (403, "forbidden"));
    }
    let other = text(&server.create(json!({})).await["id"]);
    let foreign = server.post(&path(&format!("/sandbox/{other}/reset")), json!({"snapshot_id": taken})).await;
    assert_eq!(foreign.refusal(), (409, "conflict"));
    server.delete(&sandbox).await.ok();
    for rest in ["snapshots", "fork", "pause", "resume", "reset"] {
        assert_eq!(server.post(&at(rest), json!({})).await.refusal(), (409, "not_running"), "{rest}");
    }
}

#[tokio::test]
async fn reset_pause_and_resume_show() {
    let server = Server::start(SimNode::default()).await;
    let sandbox = text(&server.create(json!({})).await["id"]);
    let post = |rest: &str| {
        let path = path(&format!("/sandbox/{sandbox}/{rest}"));
        let server = &server;
        async move { server.post(&path, json!({})).await }
    };
    post("snapshots").await.ok();
    assert_eq!(post("reset").await.ok()["generation"], 1);
    assert_eq!(post("pause").await.ok()["status"], "PAUSED");
    assert_eq!(post("pause").await.refusal(), (409, "not_running"));
    assert_eq!(post("snapshots").await.refusal(), (409, "not_running"));
    assert_eq!(post("resume").await.ok()["status"], "RUNNING");
    assert_eq!(post("resume").await.ok()["status"], "RUNNING");
    assert_eq!(post("reset").await.ok()["generation"], 2);
}

#[tokio::test]
async fn a_restart_settles_what_was_cut_off() {
    let server = Server::start(SimNode::default()).await;
    let sandbox = text(&server.create(json!({})).await["id"]);
    let kept = text(&server.post(&path(&format!("/sandbox/{sandbox}/snapshots")), json!({})).await.ok()["id"]);
    // One that the store never heard of.
    let orphan = SnapshotId::from_bits(99);
    server.node.snapshot(&SandboxId::parse(&sandbox).unwrap(), &orphan).await.unwrap();
    let server = server.restart().await;
    until("the orphan has gone", || async {
        (snapshots_of_node(&server).await == [SnapshotId::parse(&kept).unwrap()]).then_some(())
    })
    .await;
    assert_eq!(server.get(&path(&format!("/snapshots/{kept}"))).await.ok()["state"], "READY");
}

#[tokio::test]
async fn a_template_is_made_kept_and_let_go() {
    let server = Server::start(SimNode::default()).await;
    let body = json!({"docker_image": "busybox", "start_command": {"executable": "serve"}, "ready": {"executable": "/bin/true"}});
    let made = text(&server.post(&path("/templates"), body).await.ok()["id"]);
    let state = |wanted: &'static str| {
        let (server, made) = (&server, &made);
        until(wanted, move || async move {
            let shown = server.get(&path(&format!("/templates/{made}"))).await.ok();
            (shown["state"] == wanted).then_some(shown)
        })
    };
    state("READY").await;
    assert_eq!(snapshots_of_node(&server).await.len(), 1);
    assert!(server.get(&path("/snapshots")).await.ok()["snapshots"].as_array().unwrap().is_empty());
    server.post(&path(&format!("/templates/{made}/rebuild")), json!({})).await.ok();
    let before = snapshots_of_node(&server).await;
    until("another one in its place", || async {
        let now = snapshots_of_node(&server).await;
        (now.len() == 1 && now != before).then_some(())
    })
    .await;
    state("READY").await;
    server.call(Method::DELETE, &path(&format!("/templates/{made}")), Value::Null).await.ok();
    until("nothing of it is left", || async { snapshots_of_node(&server).await.is_empty().then_some(()) }).await;
    assert_eq!(server.get(&path(&format!("/templates/{made}"))).await.refusal(), (404, "not_found"));
    until("nor the sandbox that it was made in", || async { server.node.live().is_empty().then_some(()) }).await;
}

#[tokio::test]
async fn a_template_that_does_not_get_ready_says_so() {
    let server = Server::start(SimNode::default()).await;
    let body = json!({"docker_image": "busybox", "ready": {"executable": "/bin/false"}, "ready_within_secs": 1});
    let made = text(&server.post(&path("/templates"), body).await.ok()["id"]);
    let failed = until("it fails", || async {
        let shown = server.get(&path(&format!("/templates/{made}"))).await.ok();
        (shown["state"] == "FAILED").then_some(shown)
    })
    .await;
    assert!(text(&failed["error"]).contains("not ready within 1 s; last: exit code 1"), "{failed}");
    for (field, body) in [
        ("ready", json!({"docker_image": "a", "ready": {"executable": ""}})),
        ("ready_within_secs", json!({"docker_image": "a", "ready_within_secs": 0})),
        ("docker_image", json!({"docker_image": ""})),
    ] {
        let refused = server.post(&path("/templates"), body).await;
        assert_eq!(refused.refusal(), (422, "invalid_request"));
        assert!(refused.body.to_string().contains(field), "{}", refused.body);
    }
}
