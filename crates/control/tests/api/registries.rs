use crate::server::{Server, id, text, until};
use http::Method;
use serde_json::{Value, json};
use warren_testkit::node::SimNode;

const CREDENTIALS: &str = "/api/v1/registry/credentials";

fn login(server: &str, username: &str, password: &str) -> Value {
    json!({"server": server, "username": username, "password": password})
}

async fn check(server: &Server, key: &str, reference: &str) -> Value {
    let body = json!({"reference": reference});
    server.call_as(key, Method::POST, "/api/v1/registry/check-image", body).await.ok()
}

#[tokio::test]
async fn logins_are_saved_replaced_and_removed_and_their_passwords_never_come_out() {
    let server = Server::start(SimNode::default()).await;
    let put = |body: Value| server.call(Method::PUT, CREDENTIALS, body);
    let saved = put(login("https://index.docker.io/v1/", "user", "hunter2")).await.ok();
    assert_eq!((&saved["server"], &saved["username"]), (&json!("docker.io"), &json!("user")));
    let again = put(login("Docker.io", "user", "hunter3")).await.ok();
    assert_eq!(again["createdAt"], saved["createdAt"]);
    put(login("ghcr.io", "ann", "hunter4")).await.ok();
    let listed = server.get(CREDENTIALS).await.ok();
    assert_eq!(listed["credentials"].as_array().unwrap().len(), 2);
    let of_old_clients = server.get("/api/v1/template/registry-credentials").await.ok();
    assert_eq!(of_old_clients, listed);
    for key in ["id", "name", "server", "createdAt", "updatedAt", "userId"] {
        assert!(listed["credentials"][0][key].is_string(), "{key}");
    }
    for bad in [login("", "u", "p"), login("ghcr", "u", "p"), login("a.b", "", "p"), login("a.b", "u", "a\nb")] {
        assert_eq!(put(bad.clone()).await.status, 422, "{bad}");
    }
    let (_, other) = server.user("other").await;
    assert_eq!(server.call_as(&other, Method::GET, CREDENTIALS, Value::Null).await.ok(), json!({"credentials": []}));
    let left = server.call(Method::DELETE, &format!("{CREDENTIALS}?server=ghcr.io"), Value::Null).await.ok();
    assert_eq!(left["credentials"].as_array().unwrap().len(), 1);
    let gone = server.call(Method::DELETE, &format!("{CREDENTIALS}?server=ghcr.io"), Value::Null).await;
    assert_eq!(gone.refusal(), (404, "not_found"));
    for file in ["warren.db", "warren.db-wal"] {
        let bytes = std::fs::read(server.dir.path().join(file)).unwrap();
        assert!(!bytes.windows(6).any(|w| w == b"hunter"), "a password is in {file}");
    }
}

#[tokio::test]
async fn the_login_of_a_team_and_then_ones_own_goes_with_a_create_and_no_other() {
    let server = Server::start(SimNode::default()).await;
    let team = text(&server.post("/api/v1/admin/teams", json!({"slug": "crew"})).await.ok()["teamId"]);
    server.call(Method::PUT, CREDENTIALS, login("ghcr.io", "own", "p1")).await.ok();
    let mut of_team = login("ghcr.io", "crew", "p2");
    of_team["teamId"] = json!(team);
    server.call(Method::PUT, CREDENTIALS, of_team.clone()).await.ok();
    let user_of = |made: &Value| {
        let access = server.node.spec(&id(made)).unwrap().image_access;
        (access.login.map(|login| login.user), access.owner)
    };
    let own = server.create(json!({"docker_image": "ghcr.io/a/b:1"})).await;
    assert_eq!(user_of(&own).0.as_deref(), Some("own"));
    let crew = server.create(json!({"docker_image": "ghcr.io/a/b:1", "team_id": team})).await;
    assert_eq!(user_of(&crew), (Some("crew".to_owned()), format!("team:{team}")));
    let elsewhere = server.create(json!({"docker_image": "quay.io/a/b:1"})).await;
    assert_eq!(user_of(&elsewhere).0, None);
    server.call(Method::DELETE, &format!("{CREDENTIALS}?server=ghcr.io&teamId={team}"), Value::Null).await.ok();
    let fallback = server.create(json!({"docker_image": "ghcr.io/a/b:1", "team_id": team})).await;
    assert_eq!(user_of(&fallback).0.as_deref(), Some("own"));
    let (_, stranger) = server.user("stranger").await;
    let put = server.call_as(&stranger, Method::PUT, CREDENTIALS, of_team).await;
    assert_eq!(put.refusal(), (403, "forbidden"));
}

#[tokio::test]
async fn an_image_is_checked_with_what_is_saved() {
    let server = Server::start(SimNode::default()).await;
    let (_, other) = server.user("other").await;
    let saved = server.call(Method::PUT, CREDENTIALS, login("docker.io", "user", "secret")).await.ok();
    let good = check(&server, &server.key, "private/app:1").await;
    assert_eq!((&good["accessible"], &good["digest"]), (&json!(true), &json!("sha256:5151")));
    let bad = check(&server, &other, "private/app:1").await;
    assert_eq!((&bad["accessible"], &bad["code"]), (&json!(false), &json!("image_access_denied")));
    assert_eq!(check(&server, &other, "missing:1").await["code"], "image_not_found");
    let old = |body: Value| server.post("/api/v1/template/check-docker-image", body);
    assert_eq!(old(json!({"image": "private/app:1"})).await.ok()["accessible"], true);
    let with_id = json!({"image": "private/app:1", "registry_credentials_id": saved["id"]});
    assert_eq!(old(with_id.clone()).await.ok()["accessible"], true);
    let path = "/api/v1/template/check-docker-image";
    assert_eq!(server.call_as(&other, Method::POST, path, with_id).await.refusal(), (404, "not_found"));
    let elsewhere = json!({"image": "ghcr.io/app:1", "registry_credentials_id": saved["id"]});
    assert_eq!(old(elsewhere).await.ok()["accessible"], false);
    let pull = json!({"reference": "private/app:1"});
    server.post("/api/v1/images/pull", pull.clone()).await.ok();
    server.call(Method::DELETE, &format!("{CREDENTIALS}?server=docker.io"), Value::Null).await.ok();
    assert_eq!(server.post("/api/v1/images/pull", pull).await.refusal(), (403, "image_access_denied"));
}

#[tokio::test]
async fn a_check_of_an_owned_image_is_what_a_create_would_run_and_tells_others_nothing() {
    let server = Server::start(SimNode::default()).await;
    let (_, other) = server.user("other").await;
    server.node.set_digest("ghcr.io/o/app:v1", "sha256:77");
    server.post("/api/v1/images/build", json!({"source_image": "ghcr.io/o/app:v1"})).await.ok();
    until("the image is there", || async {
        let list = server.get("/api/v1/images").await.ok();
        (list["data"][0]["status"] == "COMPLETED").then_some(())
    })
    .await;
    let owned = "prime/owner/app:v1";
    let own = check(&server, &server.key, owned).await;
    assert_eq!((&own["accessible"], &own["digest"]), (&json!(true), &json!("sha256:77")));
    assert_eq!(check(&server, &other, owned).await["code"], "image_not_found");
    for key in [&server.key, &other] {
        for reference in ["prime/_artifact/sha256-77:1", "prime/_build/b1:1"] {
            let checked = check(&server, key, reference).await;
            assert_eq!((&checked["accessible"], &checked["code"]), (&json!(false), &json!("image_not_found")));
            let body = json!({"image": reference});
            let old = server.call_as(key, Method::POST, "/api/v1/template/check-docker-image", body).await.ok();
            assert_eq!(old["accessible"], false, "{reference}");
        }
    }
}
