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
async fn what_is_under_way_is_shown_to_those_who_may_see_the_image() {
    let server =
        Server::start(SimNode::new(|_| Life { build: Some(Duration::from_secs(600)), ..Life::default() })).await;
    server.post("/api/v1/images/build", json!({"source_image": "ghcr.io/o/app:v1"})).await.ok();
    until("the image is there", || async {
        let list = server.get("/api/v1/images").await.ok();
        (list["data"][0]["status"] == "COMPLETED").then_some(())
    })
    .await;
    let (_, other) = server.user("other").await;
    let (_, member) = server.user("member").await;
    for image in ["prime/owner/app:v1", "debian:12"] {
        server.create(json!({"docker_image": image})).await;
    }
    // What comes through a saved login is its owner's to see.
    let login = json!({"server": "quay.io", "username": "ann", "password": "hunter2"});
    server.call_as(&member, Method::PUT, "/api/v1/registry/credentials", login).await.ok();
    let body = json!({"name": "a", "docker_image": "quay.io/secret/app:1"});
    server.call_as(&member, Method::POST, "/api/v1/sandbox", body).await.ok();
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
    let all = ["debian:12", "prime/_artifact/sha256-5151:1", "quay.io/secret/app:1"];
    assert_eq!(shown(server.key.clone()).await, all);
    assert_eq!(shown(other).await, ["debian:12"]);
    assert_eq!(shown(member).await, ["debian:12", "quay.io/secret/app:1"]);
}
