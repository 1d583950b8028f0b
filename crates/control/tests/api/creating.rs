use crate::server::{Server, id, request, text, until};
use futures_util::future::join_all;
use http::{Method, StatusCode};
use serde_json::json;
use std::time::{Duration, Instant};
use warren_model::egress::EgressPolicy;
use warren_testkit::node::{Life, SimNode};

fn by_image() -> SimNode {
    SimNode::new(|spec| match spec.image.as_str() {
        "slow" => Life { start: Duration::from_secs(60), ..Life::default() },
        "soon" => Life { start: Duration::from_millis(300), ..Life::default() },
        "building" => Life { build: Some(Duration::from_secs(60)), ..Life::default() },
        _ => Life::default(),
    })
}

#[tokio::test]
async fn the_answer_has_all_that_clients_need() {
    let server = Server::start(by_image()).await;
    let asked = json!({
        "cpu_cores": 0.5, "memory_gb": 0.25, "disk_size_gb": 1.5, "labels": ["a", "b"], "timeout_minutes": -1,
        "environment_vars": {"SHOWN": "yes"}, "secrets": {"TOKEN": "hunter2"}, "network_allowlist": ["Example.com"],
        "start_command": {"executable": "/bin/sh", "args": ["-c", "true"]}, "idle_timeout_minutes": 5,
        "advanced_configs": {"x": {"y": 1}}, "region": "here", "vm": true, "unheard_of": [1]
    });
    let made = server.create(asked).await;
    let expected = json!({
        "status": "RUNNING", "cpuCores": 0.5, "memoryGB": 0.25, "diskSizeGB": 1.5, "gpuCount": 0, "vm": true,
        "dockerImage": "busybox", "diskMountPath": "/", "timeoutMinutes": -1, "idleTimeoutMinutes": 5, "labels": ["a", "b"],
        "environmentVars": {"SHOWN": "yes"}, "secrets": {"TOKEN": "***"}, "networkAllowlist": ["example.com"],
        "networkDenylist": null, "startCommand": {"executable": "/bin/sh", "args": ["-c", "true"]},
        "advancedConfigs": {"x": {"y": 1}}, "region": "here", "imageDigest": "sha256:5151", "infra_fault": false
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&made[key], value, "{key}");
    }
    for key in ["createdAt", "updatedAt", "startedAt"] {
        assert!(text(&made[key]).ends_with('Z'), "{key}");
    }
    let auth = &made["gatewayAuth"];
    assert_eq!(auth["gateway_url"], "http://warren.test:8080/gw");
    assert_eq!((&auth["job_id"], &auth["user_ns"]), (&made["id"], &json!("owner")));
    assert!(text(&auth["expires_at"]).ends_with('Z') && !text(&auth["token"]).is_empty());
}

#[tokio::test]
async fn secrets_reach_the_node_and_nothing_else() {
    let server = Server::start(by_image()).await;
    let made = server.create(json!({"secrets": {"TOKEN": "hunter2-in-clear"}})).await;
    assert_eq!(server.node.spec(&id(&made)).unwrap().secrets["TOKEN"], "hunter2-in-clear");
    let path = format!("/api/v1/sandbox/{}", text(&made["id"]));
    for path in [path.clone(), "/api/v1/sandbox".to_owned(), format!("{path}/error-context")] {
        assert!(!server.get(&path).await.ok().to_string().contains("hunter2"), "{path}");
    }
    for file in std::fs::read_dir(server.dir.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        assert!(!bytes.windows(7).any(|window| window == b"hunter2"));
    }
}

#[tokio::test]
async fn the_answer_waits_for_running_and_not_for_ever() {
    let server = Server::start(by_image()).await;
    let made = server.create(json!({"docker_image": "soon"})).await;
    assert_eq!(made["status"], "RUNNING");
    let begun = Instant::now();
    let made = server.create(json!({"docker_image": "slow"})).await;
    assert_eq!(made["status"], "PROVISIONING");
    assert!((1.4..10.0).contains(&begun.elapsed().as_secs_f64()), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn an_image_that_takes_long_is_not_waited_for_twice() {
    let server = Server::start(by_image()).await;
    let first = server.create(json!({"docker_image": "building"})).await;
    let begun = Instant::now();
    let second = server.create(json!({"docker_image": "building"})).await;
    assert!(begun.elapsed() < Duration::from_millis(1400), "{:?}", begun.elapsed());
    for made in [&first, &second] {
        assert_eq!((&made["status"], &made["pendingImageBuildId"]), (&json!("PENDING"), &json!("build-building")));
    }
    let ids = json!({"sandbox_ids": [first["id"], second["id"]]});
    let batch = server.post("/api/v1/sandbox/status:batchGet", ids).await.ok();
    assert_eq!(batch["statuses"][1]["pending_image_build_id"], "build-building");
}

#[tokio::test]
async fn one_key_makes_one_sandbox_also_at_once_and_after_a_restart() {
    let node = SimNode::new(|_| Life { accept: Duration::from_millis(50), ..Life::default() });
    let server = Server::start(node).await;
    let body = || request(json!({"idempotency_key": "k", "secrets": {"A": "b"}}));
    let all: Vec<_> = (0..50).map(|_| server.post("/api/v1/sandbox", body())).collect();
    let mut ids = std::collections::HashSet::new();
    for answer in join_all(all).await {
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        assert!(answer.body["gatewayAuth"]["token"].is_string());
        ids.insert(text(&answer.body["id"]));
    }
    assert_eq!((ids.len(), server.node.live().len()), (1, 1));
    let server = server.restart().await;
    assert!(ids.contains(&text(&server.post("/api/v1/sandbox", body()).await.ok()["id"])));
    for change in [json!({"cpu_cores": 2}), json!({"secrets": {"A": "c"}})] {
        let mut other = body();
        other.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        assert_eq!(server.post("/api/v1/sandbox", other).await.refusal(), (409, "idempotency_conflict"));
    }
    // The key is the user's own.
    let (_, key) = server.user("other").await;
    let theirs = server.call_as(&key, Method::POST, "/api/v1/sandbox", body()).await.ok();
    assert!(!ids.contains(&text(&theirs["id"])));
}

#[tokio::test]
async fn a_full_node_makes_a_queue_that_keeps_its_order() {
    let server = Server::start(SimNode::default()).await;
    server.node.set_capacity(Some(1));
    let mut made = Vec::new();
    for _ in 0..4 {
        made.push(server.create(json!({})).await);
    }
    assert_eq!(made[0]["status"], "RUNNING");
    assert!(made[1..].iter().all(|sandbox| sandbox["status"] == "PENDING"));
    for pair in made.windows(2) {
        server.delete(&text(&pair[0]["id"])).await.ok();
        server.until_status(&text(&pair[1]["id"]), "RUNNING").await;
        let live = server.node.live();
        assert_eq!(live, [id(&pair[1])]);
    }
    // A queued one can be deleted, and never starts.
    let queued = server.create(json!({})).await;
    server.delete(&text(&queued["id"])).await.ok();
    server.node.set_capacity(None);
    let next = server.create(json!({})).await;
    server.until_status(&text(&next["id"]), "RUNNING").await;
    assert!(!server.node.live().contains(&id(&queued)));
}

#[tokio::test]
async fn a_node_that_refuses_ends_the_sandbox_with_a_reason() {
    let refusal = warren_proto::node::CreateError::Refused("needs 9 TiB, this machine has 1 GiB".into());
    let server = Server::start(SimNode::new(move |_| Life { refuse: Some(refusal.clone()), ..Life::default() })).await;
    let made = server.create(json!({})).await;
    assert_eq!((&made["status"], &made["errorType"]), (&json!("ERROR"), &json!("START_FAILED")));
    assert!(text(&made["errorMessage"]).contains("9 TiB"));
}

#[tokio::test]
async fn an_account_has_a_limit() {
    let config = warren_control::Config { sandboxes_per_user_max: Some(2), ..Default::default() };
    let server = Server::with(SimNode::default(), config).await;
    let whoami = server.get("/api/v1/user/whoami").await.ok();
    assert_eq!(whoami["data"]["account_limits"]["vm_sandbox_limit"], 2);
    let first = server.create(json!({})).await;
    server.create(json!({})).await;
    assert_eq!(server.post("/api/v1/sandbox", request(json!({}))).await.refusal(), (429, "limit_reached"));
    server.delete(&text(&first["id"])).await.ok();
    server.create(json!({})).await;
}

#[tokio::test]
async fn a_policy_that_changes_while_it_starts_is_applied_after_it() {
    let server = Server::start(SimNode::new(|_| Life { start: Duration::from_millis(4000), ..Life::default() })).await;
    let made = server.create(json!({})).await;
    let path = format!("/api/v1/sandbox/{}/egress-policy", text(&made["id"]));
    let put = server.call(Method::PUT, &path, json!({"allowlist": [], "denylist": null})).await.ok();
    assert_eq!(put["applied"], false);
    until("the policy is applied", || async { (server.get(&path).await.ok()["applied"] == true).then_some(()) }).await;
    assert_eq!(server.node.spec(&id(&made)).unwrap().egress, EgressPolicy::Allow(vec![]));
}
