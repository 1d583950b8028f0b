use crate::server::{Server, id, text};
use http::Method;
use serde_json::{Value, json};
use warren_model::egress::EgressPolicy;
use warren_testkit::node::SimNode;

#[tokio::test]
async fn a_policy_is_echoed_applied_and_counted() {
    let server = Server::start(SimNode::default()).await;
    let made = server.create(json!({})).await;
    let path = format!("/api/v1/sandbox/{}/egress-policy", text(&made["id"]));
    let first = server.get(&path).await.ok();
    assert_eq!(
        first,
        json!({"policy": {"allowlist": null, "denylist": []}, "generation": 0, "applied_generation": 0, "applied": true})
    );
    let lists = [
        json!({"allowlist": [], "denylist": null}),
        json!({"allowlist": ["*.example.com", "10.0.0.0/8:5432"], "denylist": null}),
        json!({"allowlist": null, "denylist": []}),
    ];
    for (generation, list) in (1..).zip(lists) {
        let put = server.call(Method::PUT, &path, list.clone()).await.ok();
        assert_eq!(
            put,
            json!({"policy": list, "generation": generation, "applied_generation": generation, "applied": true})
        );
        assert_eq!(server.get(&path).await.ok(), put);
    }
    assert_eq!(server.node.spec(&id(&made)).unwrap().egress, EgressPolicy::Deny(vec![]));
    for bad in [
        json!({"allowlist": [], "denylist": []}),
        json!({"allowlist": ["http://x"]}),
        json!({"allowlist": vec!["a.b"; 1025]}),
    ] {
        assert_eq!(server.call(Method::PUT, &path, bad).await.refusal(), (422, "invalid_request"));
    }
    server.delete(&text(&made["id"])).await.ok();
    assert_eq!(server.call(Method::PUT, &path, json!({"allowlist": []})).await.refusal(), (409, "not_running"));
    server.get(&path).await.ok();
}

#[tokio::test]
async fn what_was_asked_at_create_is_shown_as_it_was_asked() {
    let server = Server::start(SimNode::default()).await;
    let shown = |asked: Value| {
        let server = &server;
        async move {
            let made = server.create(asked).await;
            json!([made["networkAllowlist"], made["networkDenylist"]])
        }
    };
    assert_eq!(shown(json!({})).await, json!([null, null]));
    assert_eq!(shown(json!({"network_allowlist": []})).await, json!([[], null]));
    assert_eq!(shown(json!({"network_denylist": []})).await, json!([null, []]));
    assert_eq!(shown(json!({"network_denylist": ["1.2.3.4"]})).await[1].as_array().unwrap().len(), 1);
}
