//! Owned images over a simulated node: builds, references, changes, deletes.

use crate::server::{Server, text, until};
use axum::body::Body;
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use std::time::Duration;
use warren_control::Config;
use warren_testkit::node::SimNode;

const BUILD: &str = "/api/v1/images/build";

/// A server whose node has the image that Dockerfiles are built in.
pub(crate) async fn with_builder(config: Config) -> Server {
    let server = Server::with(SimNode::default(), config).await;
    server
        .post("/api/v1/images/import", json!({"path": server.dir.path(), "name": "prime/_server/builder:1"}))
        .await
        .ok();
    server
}

async fn state(server: &Server, id: &str) -> Value {
    server.get(&format!("{BUILD}/{id}")).await.ok()
}

pub(crate) async fn over(server: &Server, id: &str) -> Value {
    until(&format!("build {id} is over"), || async {
        let state = state(server, id).await;
        ["COMPLETED", "FAILED", "CANCELLED"].contains(&state["status"].as_str().unwrap()).then_some(state)
    })
    .await
}

async fn upload(server: &Server, url: &str, content: &str) -> StatusCode {
    let path = url.strip_prefix("http://warren.test:8080").unwrap_or_else(|| panic!("not absolute: {url}"));
    let request = Request::builder().method(Method::PUT).uri(path).header("host", "warren.test:8080");
    server.send(request.body(Body::from(content.to_owned())).unwrap()).await.status
}

/// Asks for a build of a Dockerfile, uploads and starts it; answers its id.
async fn push(server: &Server, name: &str, more: Value) -> String {
    push_as(server, &server.key, name, more).await
}

pub(crate) async fn push_as(server: &Server, key: &str, name: &str, more: Value) -> String {
    let mut body = json!({"image_name": name, "image_tag": "v1", "dockerfile_path": ".__prime_dockerfile__", "platform": "linux/amd64"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let asked = server.call_as(key, Method::POST, BUILD, body).await.ok();
    let id = text(&asked["build_id"]);
    assert!(asked["expires_in"].as_u64().is_some_and(|secs| secs > 60));
    assert_eq!(upload(server, asked["upload_url"].as_str().unwrap(), "context").await, StatusCode::OK);
    let start = format!("{BUILD}/{id}/start");
    server.call_as(key, Method::POST, &start, json!({"context_uploaded": true})).await.ok();
    id
}

pub(crate) async fn source(server: &Server, key: &str, body: Value) -> Value {
    server.call_as(key, Method::POST, BUILD, body).await.ok()
}

async fn images(server: &Server, key: &str, query: &str) -> Value {
    server.call_as(key, Method::GET, &format!("/api/v1/images?{query}"), Value::Null).await.ok()
}

async fn patch(server: &Server, key: &str, dry_run: bool, updates: Value) -> Value {
    let body = json!({"mode": "explicit", "dryRun": dry_run, "updates": updates});
    server.call_as(key, Method::PATCH, "/api/v1/images", body).await.ok()
}

fn personal(name: &str, tag: &str) -> Value {
    json!({"owner": {"type": "personal"}, "name": name, "tag": tag})
}

#[tokio::test]
async fn a_dockerfile_is_built_in_a_sandbox_that_nobody_sees() {
    let server = with_builder(Config::default()).await;
    let id = push(&server, "app", json!({})).await;
    let done = over(&server, &id).await;
    assert_eq!(
        (&done["status"], &done["fullImagePath"]),
        (&json!("COMPLETED"), &json!("prime/owner/app:v1")),
        "{done}"
    );
    until("the builder waits for the next build, and the one that its template was made in has gone", || async {
        (server.node.live().len() == 1 && server.node.creates() == 2).then_some(())
    })
    .await;
    assert_eq!(server.get("/api/v1/sandbox").await.ok()["total"], 0);
    // The next build of the same owner takes the same.
    let again = push(&server, "app", json!({})).await;
    over(&server, &again).await;
    assert_eq!(server.node.creates(), 2);
    // Only the pin of what the tag leads to now is kept.
    let digest = text(&over(&server, &again).await["digest"]);
    let pin = format!("prime/_artifact/{}:1", digest.replace(':', "-"));
    until("the first image is let go", || async {
        let names: Vec<_> =
            server.node.image_names().into_iter().filter(|name| name != "prime/_server/builder:1").collect();
        (names == [pin.clone()]).then_some(())
    })
    .await;
    assert_eq!(server.get("/api/v1/images/local").await.ok()["images"].as_array().unwrap().len(), 1);
    server.call(Method::DELETE, "/api/v1/images/build-cache", Value::Null).await.ok();
    assert!(server.node.live().is_empty());
}

#[tokio::test]
async fn a_sandbox_runs_the_digest_that_the_tag_led_to() {
    let server = with_builder(Config::default()).await;
    let first = over(&server, &push(&server, "app", json!({})).await).await;
    let sandbox = server.create(json!({"docker_image": "prime/owner/app:v1"})).await;
    assert_eq!((&sandbox["dockerImage"], &sandbox["imageDigest"]), (&json!("prime/owner/app:v1"), &first["digest"]));
    let pin = format!("prime/_artifact/{}:1", text(&first["digest"]).replace(':', "-"));
    assert_eq!(server.node.spec(&crate::server::id(&sandbox)).unwrap().image, pin);
    // The tag moves; what runs keeps its bytes until it ends.
    let second = over(&server, &push(&server, "app", json!({})).await).await;
    assert_ne!(first["digest"], second["digest"]);
    let newer = server.create(json!({"docker_image": "prime/owner/app:v1"})).await;
    assert_eq!(newer["imageDigest"], second["digest"]);
    server.call(Method::DELETE, "/api/v1/images/app/v1", Value::Null).await.ok();
    assert!(server.node.image_names().contains(&pin));
    server.delete(sandbox["id"].as_str().unwrap()).await.ok();
    until("the bytes go with the sandbox", || async { (!server.node.image_names().contains(&pin)).then_some(()) })
        .await;
    let refused = server.post("/api/v1/sandbox", json!({"name": "a", "docker_image": "prime/owner/app:v1"})).await;
    assert_eq!(refused.refusal(), (404, "image_not_found"));
}

#[tokio::test]
async fn one_source_and_several() {
    let server = with_builder(Config::default()).await;
    let one =
        source(&server, &server.key, json!({"source_image": "ghcr.io/o/deep/app:v1", "image_name": "mine"})).await;
    assert_eq!((&one["fullImagePath"], one.get("results")), (&json!("prime/owner/mine:latest"), None), "{one}");
    assert_eq!(one["buildIds"], json!([one["build_id"]]));
    let two = json!({"source_image": "ghcr.io/o/a:v1, quay.io/Bad/x, missing.io/x:1", "dockerfile_path": "Dockerfile"});
    let several = source(&server, &server.key, two).await;
    let results = several["results"].as_array().unwrap();
    assert_eq!((results.len(), &results[0]["sourceImage"]), (3, &json!("ghcr.io/o/a:v1")));
    assert!(
        results[1]["build"].is_null() && results[1]["error"].is_string() && results[1]["retryable"] == json!(false)
    );
    let failed = over(&server, results[2]["build"]["build_id"].as_str().unwrap()).await;
    assert_eq!((&failed["status"], &failed["errorCode"]), (&json!("FAILED"), &json!("image_not_found")));
    assert!(failed["errorMessage"].as_str().unwrap().contains("image_not_found"));
}

#[tokio::test]
async fn docker_hub_becomes_the_platforms() {
    let server = with_builder(Config::default()).await;
    let (_, key) = server.user("other").await;
    server.node.set_digest("library/ubuntu:22.04", "sha256:1");
    let built = source(
        &server,
        &key,
        json!({"source_image": "library/ubuntu:22.04", "visibility": "PUBLIC", "owner_scope": "platform"}),
    )
    .await;
    assert_eq!(built["fullImagePath"], "ubuntu:22.04");
    let id = text(&built["build_id"]);
    until("built", || async {
        let state = server.call_as(&key, Method::GET, &format!("{BUILD}/{id}"), Value::Null).await.ok();
        (state["status"] == "COMPLETED").then_some(())
    })
    .await;
    let list = images(&server, &server.key, "ownerScope=platform").await;
    assert_eq!(
        (&list["totalCount"], &list["data"][0]["displayRef"], &list["data"][0]["ownerType"]),
        (&json!(1), &json!("ubuntu:22.04"), &json!("platform"))
    );
    assert_eq!(server.create(json!({"docker_image": "ubuntu:22.04"})).await["imageDigest"], "sha256:1");
    for bad in [json!({"image_name": "mine"}), json!({"team_id": "c1"}), json!({"visibility": "PRIVATE"})] {
        let mut body = json!({"source_image": "ubuntu:22.04"});
        body.as_object_mut().unwrap().extend(bad.as_object().unwrap().clone());
        assert_eq!(server.call_as(&key, Method::POST, BUILD, body).await.refusal(), (422, "invalid_request"), "{bad}");
    }
    // Whoever may run it may not change it.
    let deleted = server.call_as(&key, Method::DELETE, "/api/v1/images/ubuntu/22.04", Value::Null).await;
    assert_eq!(deleted.refusal(), (403, "forbidden"));
}

#[tokio::test]
async fn private_is_private_and_public_is_everyones() {
    let server = with_builder(Config::default()).await;
    let (other_id, other) = server.user("other").await;
    let (_, third) = server.user("third").await;
    let made = source(&server, &other, json!({"source_image": "ghcr.io/o/app:v1"})).await;
    until("built", || async {
        let list = images(&server, &other, "").await;
        (list["data"][0]["status"] == "COMPLETED").then_some(())
    })
    .await;
    assert_eq!(made["fullImagePath"], "prime/other/app:v1");
    let run = |key: String, image: String| {
        let server = &server;
        async move {
            let body = json!({"name": "a", "docker_image": image});
            server.call_as(&key, Method::POST, "/api/v1/sandbox", body).await
        }
    };
    for image in ["prime/other/app:v1".to_owned(), format!("prime/{other_id}/app:v1"), format!("{other_id}/app:v1")] {
        assert_eq!(run(other.clone(), image.clone()).await.status, StatusCode::OK, "{image}");
        assert_eq!(run(third.clone(), image.clone()).await.refusal(), (404, "image_not_found"), "{image}");
    }
    let delete = |key: String| {
        let server = &server;
        async move { server.call_as(&key, Method::DELETE, "/api/v1/images/prime/other/app/v1", Value::Null).await }
    };
    assert_eq!(delete(third.clone()).await.refusal(), (404, "image_not_found"));
    let public = json!([{"source": {"reference": "prime/other/app:v1"}, "set": {"visibility": "PUBLIC"}}]);
    let refused = patch(&server, &third, false, public.clone()).await;
    assert_eq!(refused["results"][0]["error"]["code"], "not_found");
    let done = patch(&server, &other, false, public.clone()).await;
    assert_eq!((&done["success"], &done["results"][0]["source"]), (&json!(true), &public[0]["source"]));
    assert_eq!(run(third.clone(), "prime/other/app:v1".into()).await.status, StatusCode::OK);
    assert_eq!(patch(&server, &third, false, public).await["results"][0]["error"]["code"], "forbidden");
    assert_eq!(delete(third).await.refusal(), (403, "forbidden"));
    delete(other).await.ok();
}

#[tokio::test]
async fn changes_are_done_in_order_and_a_dry_run_does_none() {
    let server = with_builder(Config::default()).await;
    for name in ["a", "b"] {
        over(&server, &push(&server, name, json!({})).await).await;
    }
    let team = server.post("/api/v1/admin/teams", json!({"slug": "team"})).await.ok();
    let team = text(&team["teamId"]);
    let updates = json!([
        {"source": personal("a", "v1"), "set": {"name": "b"}},
        {"source": personal("a", "v1"), "set": {"name": "c", "tag": "v2"}},
        {"source": personal("c", "v2"), "set": {"owner": {"type": "team", "teamId": team}}},
        {"source": personal("nothing", "v1"), "set": {"visibility": "PUBLIC"}},
        {"source": {"reference": "prime/owner/b:v1"}, "set": {"owner": {"type": "platform"}}},
    ]);
    for dry_run in [true, false] {
        let answer = patch(&server, &server.key, dry_run, updates.clone()).await;
        assert_eq!((&answer["success"], &answer["dryRun"]), (&json!(false), &json!(dry_run)));
        let results = answer["results"].as_array().unwrap();
        let outcomes: Vec<_> = results.iter().map(|r| r["error"]["code"].as_str().unwrap_or("done")).collect();
        assert_eq!(outcomes, ["conflict", "done", "done", "not_found", "done"]);
        assert!(results.iter().zip(updates.as_array().unwrap()).all(|(r, u)| r["source"] == u["source"]));
        assert_eq!(results[2]["after"]["owner"], json!({"type": "team", "teamId": team}));
        assert_eq!(
            results[4]["after"],
            json!({"owner": {"type": "platform"}, "name": "b", "tag": "v1", "visibility": "PUBLIC"})
        );
        assert_eq!(images(&server, &server.key, "").await["totalCount"], if dry_run { 2 } else { 0 });
    }
    let list = images(&server, &server.key, &format!("teamId={team}")).await;
    assert_eq!(list["data"][0]["displayRef"], format!("prime/team-{team}/c:v2"));
    server.create(json!({"docker_image": format!("team-{team}/c:v2")})).await;
    let deleted = format!("/api/v1/images/c/v2?teamId={team}");
    server.call(Method::DELETE, &deleted, Value::Null).await.ok();
    assert_eq!(server.call(Method::DELETE, &deleted, Value::Null).await.refusal(), (404, "image_not_found"));
    for bad in
        [json!({}), json!({"reference": "a:v1", "name": "a"}), json!({"owner": {"type": "personal"}, "name": "a"})]
    {
        let body = json!({"mode": "explicit", "updates": [{"source": bad, "set": {"name": "x"}}]});
        assert_eq!(server.call(Method::PATCH, "/api/v1/images", body).await.refusal(), (422, "invalid_request"));
    }
}

#[tokio::test]
async fn lists_count_tags_and_search_in_any_case() {
    let server = with_builder(Config::default()).await;
    for name in ["alpha", "beta", "beta_2"] {
        over(&server, &push(&server, name, json!({})).await).await;
    }
    let broken = push(&server, "beta", json!({"dockerfile_path": "broken"})).await;
    assert_eq!(over(&server, &broken).await["errorCode"], "build_failed");
    let names = |list: &Value| -> Vec<String> {
        list["data"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| format!("{} {}", text(&item["imageName"]), text(&item["status"])))
            .collect()
    };
    let list = images(&server, &server.key, "search=BETA&limit=1&offset=1").await;
    assert_eq!((&list["totalCount"], &list["offset"], &list["limit"]), (&json!(2), &json!(1), &json!(1)));
    assert_eq!(names(&list), ["beta FAILED", "beta COMPLETED"], "the tag leads where it led");
    assert_eq!(images(&server, &server.key, "search=eta_").await["totalCount"], 1);
    assert_eq!(images(&server, &server.key, "search=prime%2Fowner%2Fal").await["totalCount"], 1);
    assert_eq!(images(&server, &server.key, "search=%25").await["totalCount"], 0);
    assert_eq!(server.get("/api/v1/images?limit=251").await.refusal(), (422, "invalid_request"));
    server.create(json!({"docker_image": "prime/owner/beta:v1"})).await;
}

#[tokio::test]
async fn uploads_are_for_whoever_has_the_url_and_for_one_build() {
    let server = with_builder(Config::default()).await;
    let ask = json!({"image_name": "app"});
    let (one, two) = (server.post(BUILD, ask.clone()).await.ok(), server.post(BUILD, ask).await.ok());
    let (url, id) = (text(&one["upload_url"]), text(&one["build_id"]));
    let start = format!("{BUILD}/{id}/start");
    assert_eq!(server.post(&start, json!({})).await.refusal(), (409, "conflict"), "without a context");
    let of_other = url.replace(&id, two["build_id"].as_str().unwrap());
    for bad in [of_other, url.replace("signature=", "signature=x"), url.split('?').next().unwrap().to_owned()] {
        assert_eq!(upload(&server, &bad, "x").await, StatusCode::FORBIDDEN, "{bad}");
    }
    assert_eq!(upload(&server, &url, "x").await, StatusCode::OK);
    assert_eq!(state(&server, &id).await["status"], "UPLOADING");
    assert_eq!(upload(&server, &url, "again").await, StatusCode::OK);
    server.post(&start, json!({})).await.ok();
    server.post(&start, json!({})).await.ok();
    assert_eq!(upload(&server, &url, "late").await, StatusCode::CONFLICT);
    assert_eq!(over(&server, &id).await["status"], "COMPLETED");
    let (_, key) = server.user("other").await;
    for path in [format!("{BUILD}/{id}"), format!("{BUILD}/{id}/logs")] {
        assert_eq!(server.call_as(&key, Method::GET, &path, Value::Null).await.refusal(), (404, "not_found"));
    }
    assert!(server.get(BUILD).await.ok()["builds"].as_array().unwrap().len() == 2);
}

#[tokio::test]
async fn what_is_asked_for_is_checked() {
    let server = Server::start(SimNode::default()).await;
    let missing = server.post(BUILD, json!({"image_name": "app"})).await;
    assert_eq!(missing.refusal(), (501, "not_offered"));
    assert!(text(&missing.body["detail"]).contains("scripts/builder-image.sh"));
    for bad in [
        json!({}),
        json!({"image_name": "App"}),
        json!({"image_name": "a/b"}),
        json!({"image_name": "a", "image_tag": "-"}),
        json!({"image_name": "a", "dockerfile_path": "../Dockerfile"}),
        json!({"image_name": "a", "platform": "linux/riscv64"}),
        json!({"image_name": "a", "build_args": {"1": "x"}}),
        json!({"source_image": " , "}),
        json!({"source_image": "ghcr.io/a/b,ghcr.io/a/c", "image_name": "a"}),
    ] {
        let answer = server.post(BUILD, bad.clone()).await;
        let checked_later = bad.get("image_name").is_some() && answer.refusal() == (501, "not_offered");
        assert!(answer.refusal() == (422, "invalid_request") || checked_later, "{bad}: {answer:?}");
    }
    let (_, key) = server.user("other").await;
    let platform = json!({"source_image": "ghcr.io/a/b", "owner_scope": "platform"});
    assert_eq!(server.call_as(&key, Method::POST, BUILD, platform).await.refusal(), (403, "forbidden"));
    for reserved in ["prime/_artifact/sha256-1:1", "prime/_build/b1:1"] {
        let answer = server.post("/api/v1/sandbox", json!({"name": "a", "docker_image": reserved})).await;
        assert_eq!(answer.refusal(), (404, "image_not_found"));
    }
}

#[tokio::test]
async fn limits_are_said_in_the_words_that_clients_know() {
    let config =
        Config { images_per_owner_max: Some(1), image_bytes_per_owner_max: Some(1 << 20), ..Config::default() };
    let server = with_builder(config).await;
    let id = push(&server, "app", json!({})).await;
    let more = server.post(BUILD, json!({"source_image": "ghcr.io/a/b"})).await;
    assert_eq!(more.refusal(), (429, "limit_reached"));
    assert!(text(&more.body["detail"]).contains("image limit exceeded"));
    over(&server, &id).await;
    let larger = server.post(BUILD, json!({"image_name": "app", "image_tag": "v1"})).await;
    assert_eq!(larger.refusal(), (429, "limit_reached"));
    assert!(text(&larger.body["detail"]).contains("image storage limit exceeded"));
}

#[tokio::test]
async fn a_cancel_ends_the_builder_and_a_delete_cancels() {
    let server = with_builder(Config::default()).await;
    server.node.set_build_time(Duration::from_secs(600));
    for by_delete in [false, true] {
        let id = push(&server, "app", json!({})).await;
        until("a builder", || async { (server.node.live().len() == 1).then_some(()) }).await;
        match by_delete {
            false => server.post(&format!("{BUILD}/{id}/cancel"), json!({})).await.ok(),
            true => server.call(Method::DELETE, "/api/v1/images/app/v1", Value::Null).await.ok(),
        };
        assert_eq!(over(&server, &id).await["status"], "CANCELLED");
        until("no builder", || async { server.node.live().is_empty().then_some(()) }).await;
        server.post(&format!("{BUILD}/{id}/cancel"), json!({})).await.ok();
    }
    assert_eq!(images(&server, &server.key, "").await["totalCount"], 0);
}

#[tokio::test]
async fn a_restart_begins_builds_again_and_leaves_no_builder() {
    let server = with_builder(Config::default()).await;
    server.node.set_build_time(Duration::from_secs(600));
    let id = push(&server, "app", json!({})).await;
    until("a builder", || async { server.node.live().first().cloned() }).await;
    let first = until("BUILDING", || async { server.node.live().first().cloned() }).await;
    let server = server.restart().await;
    server.node.set_build_time(Duration::ZERO);
    assert_eq!(over(&server, &id).await["status"], "COMPLETED");
    until("the old builder is gone", || async { (!server.node.live().contains(&first)).then_some(()) }).await;
    // Given up after some attempts.
    server.node.set_build_time(Duration::from_secs(600));
    let id = push(&server, "other", json!({})).await;
    let mut server = server;
    for _ in 0..3 {
        until("BUILDING", || async { (state(&server, &id).await["status"] == "BUILDING").then_some(()) }).await;
        server = server.restart().await;
    }
    assert_eq!(over(&server, &id).await["errorCode"], "build_interrupted");
}

#[tokio::test]
async fn turns_are_shared_among_owners() {
    let server = with_builder(Config::default()).await;
    server.node.set_build_time(Duration::from_secs(600));
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        ids.push(push(&server, name, json!({})).await);
    }
    let status = |id: String| {
        let server = &server;
        async move { text(&state(server, &id).await["status"]) }
    };
    until("two at once", || async { (status(ids[1].clone()).await == "BUILDING").then_some(()) }).await;
    assert_eq!(status(ids[2].clone()).await, "PENDING");
    server.post(&format!("{BUILD}/{}/cancel", ids[0]), json!({})).await.ok();
    until("its turn", || async { (status(ids[2].clone()).await == "BUILDING").then_some(()) }).await;
}
