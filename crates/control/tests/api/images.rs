use crate::server::Server;
use http::Method;
use serde_json::{Value, json};
use warren_testkit::node::SimNode;

#[tokio::test]
async fn pull_import_list_remove() {
    let server = Server::start(SimNode::default()).await;
    let pulled = server.post("/api/v1/images/pull", json!({"reference": "debian:12"})).await.ok();
    assert_eq!((&pulled["reference"], &pulled["sizeBytes"]), (&json!("debian:12"), &json!(1 << 20)));
    let missing = server.post("/api/v1/images/pull", json!({"reference": "missing:1"})).await;
    assert_eq!(missing.refusal(), (404, "image_not_found"));
    let here = json!({"path": server.dir.path(), "name": "base:1"});
    server.post("/api/v1/images/import", here).await.ok();
    for (path, status) in [("relative", (422, "invalid_request")), ("/no/such/file", (422, "image_bad_reference"))] {
        let answer = server.post("/api/v1/images/import", json!({"path": path, "name": "a:1"})).await;
        assert_eq!(answer.refusal(), status);
    }
    let list = server.get("/api/v1/images/local").await.ok();
    let names: Vec<_> = list["images"].as_array().unwrap().iter().map(|image| &image["reference"]).collect();
    assert_eq!(names, ["base:1", "debian:12"]);
    let remove = |query: &'static str| server.call(Method::DELETE, query, Value::Null);
    assert_eq!(remove("/api/v1/images/local?reference=debian%3A12").await.ok()["images"].as_array().unwrap().len(), 1);
    assert_eq!(remove("/api/v1/images/local?reference=debian%3A12").await.refusal(), (404, "image_not_found"));
    assert_eq!(remove("/api/v1/images/local").await.refusal(), (422, "invalid_request"));
    assert_eq!(server.get("/api/v1/images/builds").await.ok(), json!({"builds": []}));

    let (_, key) = server.user("other").await;
    let pull = server.call_as(&key, Method::POST, "/api/v1/images/pull", json!({"reference": "debian:12"})).await;
    assert_eq!(pull.refusal(), (403, "forbidden"));
}
