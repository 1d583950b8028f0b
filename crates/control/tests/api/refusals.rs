use crate::server::{Server, request, text};
use axum::body::Body;
use http::{Method, Request};
use serde_json::{Value, json};
use std::collections::HashMap;
use warren_proto::http::ErrorCode;
use warren_testkit::node::SimNode;

#[tokio::test]
async fn every_refusal_is_json_with_a_code_of_the_list() {
    let server = Server::start(SimNode::default()).await;
    let calls = [
        (Method::GET, "/nonsense", 404, "route_not_found"),
        (Method::GET, "/api/v1/nonsense", 404, "route_not_found"),
        (Method::GET, "/api/v1/sandbox/snosuchsandbox", 404, "not_found"),
        (Method::GET, "/api/v1/sandbox/%2e%2e%2f", 404, "not_found"),
        (Method::GET, "/api/v1/sandbox/s/none/such", 404, "route_not_found"),
        (Method::PUT, "/api/v1/sandbox", 405, "method_not_allowed"),
        (Method::POST, "/healthz", 405, "method_not_allowed"),
        // Static words win over ids, for every method.
        (Method::GET, "/api/v1/sandbox/status:batchGet", 405, "method_not_allowed"),
        (Method::DELETE, "/api/v1/sandbox/status:batchGet", 405, "method_not_allowed"),
        (Method::GET, "/api/v1/sandbox/volumes", 501, "not_offered"),
        (Method::DELETE, "/api/v1/sandbox/networks", 501, "not_offered"),
        (Method::GET, "/api/v1/sandbox/volumes/logs", 501, "not_offered"),
        (Method::POST, "/api/v1/sandbox/snosuchsandbox/checkpoints", 404, "not_found"),
        (Method::GET, "/api/v1/sandbox/checkpoints/knosuchcheckpoint", 404, "not_found"),
    ];
    let codes: HashMap<_, _> = ErrorCode::ALL.iter().map(|code| (code.as_str(), code.status())).collect();
    for (method, path, status, code) in calls {
        let answer = server.call(method.clone(), path, Value::Null).await;
        assert_eq!(answer.refusal(), (status, code), "{method} {path}");
        assert!(answer.body["detail"].is_string() && codes[code] == status, "{answer:?}");
    }
}

#[tokio::test]
async fn faulty_fields_are_listed() {
    let server = Server::start(SimNode::default()).await;
    let bodies = [
        json!({"name": ""}),
        json!({"docker_image": null}),
        json!({"docker_image": "has blanks"}),
        json!({"cpu_cores": 0}),
        json!({"memory_gb": "much"}),
        json!({"timeout_minutes": 60.5}),
        json!({"timeout_minutes": i64::MAX}),
        json!({"timeout_minutes": 5, "idle_timeout_minutes": 6}),
        json!({"idle_timeout_minutes": 0}),
        json!({"arch": "riscv64"}),
        json!({"gpu_count": 1, "gpu_type": "H100"}),
        json!({"checkpoint_id": "k1"}),
        json!({"volumes": [{"name": "v", "mount_path": "/v"}]}),
        json!({"labels": ["\u{7}"]}),
        json!({"start_command": "echo hi"}),
        json!({"secrets": {"A\u{0}": "b"}}),
        json!({"idempotency_key": ""}),
    ];
    for more in bodies {
        let answer = server.post("/api/v1/sandbox", request(more.clone())).await;
        assert_eq!(answer.status, 422, "{more}: {answer:?}");
        let first = &answer.body["detail"][0];
        assert!(first["loc"][0] == "body" && first["msg"].is_string() && first["type"].is_string(), "{answer:?}");
    }
    assert!(server.node.live().is_empty());
}

#[tokio::test]
async fn a_refusal_never_repeats_a_secret() {
    let server = Server::start(SimNode::default()).await;
    let bodies = [
        json!({"secrets": {"A=hunter2": "hunter2"}}),
        json!({"secrets": {"A": ["hunter2"]}}),
        json!({"secrets": "hunter2"}),
        json!({"environment_vars": {"A": "hunter2\u{0}"}}),
    ];
    for more in bodies {
        let answer = server.post("/api/v1/sandbox", request(more)).await;
        assert!(answer.status == 422 && !answer.body.to_string().contains("hunter2"), "{answer:?}");
    }
}

#[tokio::test]
async fn bodies_that_are_none_or_too_large() {
    let server = Server::start(SimNode::default()).await;
    let send = |body: Body| {
        let request = Request::post("/api/v1/sandbox").header("authorization", format!("Bearer {}", server.key));
        server.send(request.header("host", "h").body(body).unwrap())
    };
    for bad in ["", "{", "null", "[]", "{} {}", "\u{0}"] {
        let answer = send(Body::from(bad)).await;
        assert_eq!(answer.refusal(), (422, "invalid_body"), "{bad:?}");
        assert!(answer.body["detail"].is_array());
    }
    let large = json!({"name": "x".repeat(5 << 20)}).to_string();
    assert_eq!(send(Body::from(large)).await.refusal(), (413, "body_too_large"));
    // Just below the limit the fields decide.
    let below = json!({"name": "x".repeat(3 << 20)}).to_string();
    assert_eq!(send(Body::from(below)).await.refusal(), (422, "invalid_request"));
}

#[tokio::test]
async fn clients_send_a_content_type_without_a_body() {
    let server = Server::start(SimNode::default()).await;
    let made = text(&server.create(json!({})).await["id"]);
    server.get(&format!("/api/v1/sandbox/{made}")).await.ok();
    server.post(&format!("/api/v1/sandbox/{made}/auth"), Value::Null).await.ok();
    server.delete(&made).await.ok();
}
