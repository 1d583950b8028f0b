//! What Dockerfiles build on, over a simulated node: what it is asked for, and for whom.

use crate::owned_images::{over, push_as, source, with_builder};
use crate::server::{Server, until};
use http::Method;
use serde_json::{Value, json};
use warren_control::Config;
use warren_model::ImageAccess;

/// A server with the image `prime/other/app:v1`, and the keys of its owner and of somebody else.
async fn with_owned() -> (Server, String, String) {
    let server = with_builder(Config::default()).await;
    let (_, other) = server.user("other").await;
    let (_, third) = server.user("third").await;
    source(&server, &other, json!({"source_image": "ghcr.io/o/app:v1"})).await;
    until("built", || async {
        let list = server.call_as(&other, Method::GET, "/api/v1/images", Value::Null).await.ok();
        (list["data"][0]["status"] == "COMPLETED").then_some(())
    })
    .await;
    (server, other, third)
}

async fn built(server: &Server, key: &str, dockerfile: &str, more: Value) -> Value {
    server.node.set_dockerfile(dockerfile);
    let id = push_as(server, key, "made", more).await;
    over(server, &id).await
}

#[tokio::test]
async fn bases_are_pinned_and_fetched_with_the_owners_login() {
    let (server, other, _) = with_owned().await;
    let login = json!({"server": "quay.io", "username": "ann", "password": "hunter2"});
    server.call_as(&other, Method::PUT, "/api/v1/registry/credentials", login).await.ok();
    let digest = format!("quay.io/o/tools@sha256:{}", "a".repeat(64));
    let text = format!("ARG WHO\nFROM prime/$WHO/app:v1\nCOPY --from={digest} / /\nCOPY --from=quay.io/o/x:1 / /\n");
    let done = built(&server, &other, &text, json!({"build_args": {"WHO": "other"}})).await;
    assert_eq!(done["status"], "COMPLETED", "{done}");
    let order = server.node.last_order().unwrap();
    let [owned, tools, x] = order.bases.as_slice() else { panic!("{:?}", order.bases) };
    assert_eq!((owned.name.as_str(), owned.image.as_str()), ("prime/other/app:v1", "prime/_artifact/sha256-5151:1"));
    assert_eq!(owned.access, ImageAccess::default());
    assert_eq!((&tools.image, x.image.as_str(), x.name.as_str()), (&digest, "quay.io/o/x:1", "quay.io/o/x:1"));
    for base in [tools, x] {
        assert_eq!(base.access.login.as_ref().map(|login| login.password.as_str()), Some("hunter2"));
    }
    assert_eq!(order.text, Some(text.replace(&digest, &tools.name)), "Docker knows no digest that it did not pull");
}

#[tokio::test]
async fn what_one_may_not_use_is_no_base() {
    let (server, other, third) = with_owned().await;
    for image in ["prime/other/app:v1", "prime/nobody/app:v1", "prime/_artifact/sha256-5151:1"] {
        let refused = built(&server, &third, &format!("FROM {image}\n"), json!({})).await;
        assert_eq!(
            (&refused["status"], &refused["errorCode"]),
            (&json!("FAILED"), &json!("image_not_found")),
            "{image}"
        );
        assert!(refused["errorMessage"].as_str().unwrap().contains(image), "{refused}");
    }
    assert!(server.node.last_order().is_none(), "nothing was built");
    until("the machine is as good as before; the other was for its template", || async {
        (server.node.live().len() == 1 && server.node.creates() == 2).then_some(())
    })
    .await;
    // Stages that are not needed are not looked at.
    let done = built(&server, &third, "FROM prime/other/app:v1 AS unused\nFROM scratch\n", json!({})).await;
    assert_eq!(done["status"], "COMPLETED", "{done}");
    let published = server.call_as(
        &other,
        Method::PATCH,
        "/api/v1/images",
        json!({"mode": "explicit", "dryRun": false, "updates": [
        {"source": {"owner": {"type": "personal"}, "name": "app", "tag": "v1"}, "set": {"visibility": "PUBLIC"}}]}),
    );
    published.await.ok();
    assert_eq!(built(&server, &third, "FROM prime/other/app:v1\n", json!({})).await["status"], "COMPLETED");
}
