use crate::server::{Server, until};
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;
use warren_testkit::node::{Life, SimNode};

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

#[tokio::test]
async fn what_is_under_way_for_owned_images_is_shown_to_administrators_only() {
    let server =
        Server::start(SimNode::new(|_| Life { build: Some(Duration::from_secs(600)), ..Life::default() })).await;
    server.post("/api/v1/images/build", json!({"source_image": "ghcr.io/o/app:v1"})).await.ok();
    until("the image is there", || async {
        let list = server.get("/api/v1/images").await.ok();
        (list["data"][0]["status"] == "COMPLETED").then_some(())
    })
    .await;
    let (_, other) = server.user("other").await;
    for image in ["prime/owner/app:v1", "debian:12"] {
        server.create(json!({"docker_image": image})).await;
    }
    let shown = |key: String| {
        let server = &server;
        async move {
            let builds = server.call_as(&key, Method::GET, "/api/v1/images/builds", Value::Null).await.ok();
            let builds = builds["builds"].as_array().unwrap().clone();
            let mut names: Vec<_> =
                builds.iter().map(|build| build["reference"].as_str().unwrap().to_owned()).collect();
            names.sort();
            names
        }
    };
    assert_eq!(shown(server.key.clone()).await, ["debian:12", "prime/_artifact/sha256-5151:1"]);
    assert_eq!(shown(other).await, ["debian:12"]);
}
