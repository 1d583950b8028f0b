use crate::server::{Server, request, text};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use rsa::pkcs8::{EncodePublicKey, LineEnding};
use rsa::sha2::Sha256;
use rsa::{Generate, PrivateKey};
use serde_json::{Value, json};
use warren_testkit::node::SimNode;

#[tokio::test]
async fn a_client_without_a_key_gets_one_that_only_it_can_read() {
    let server = Server::start(SimNode::default()).await;
    let private = PrivateKey::generate();
    let pem = private.to_public_key().to_public_key_pem(LineEnding::LF).unwrap();
    let begin = json!({"encryptionPublicKey": pem, "limits": {"maxConcurrentSandboxes": 1, "maxTunnelTtlHours": 3}});
    let begun = server.call_as("", Method::POST, "/api/v1/auth_challenge/generate", begin).await;
    assert_eq!(begun.status, 200);
    let (code, token) = (text(&begun.body["challenge"]), text(&begun.body["status_auth_token"]));
    let status = |token: String| {
        let (server, path) = (&server, format!("/api/v1/auth_challenge/status?challenge={code}"));
        async move { server.call_as(&token, Method::GET, &path, Value::Null).await }
    };
    assert_eq!(status(token.clone()).await.ok(), json!({"status": "pending"}));
    assert_eq!(status("wrong".to_owned()).await.refusal(), (401, "unauthorized"));
    assert_eq!(status(String::new()).await.refusal(), (401, "unauthorized"));

    let approve = json!({"challenge": code});
    server.post("/api/v1/auth_challenge/approve", approve.clone()).await.ok();
    assert_eq!(server.post("/api/v1/auth_challenge/approve", approve).await.refusal(), (409, "conflict"));
    let result = STANDARD.decode(text(&status(token).await.ok()["result"])).unwrap();
    let key = String::from_utf8(private.oaep_decrypt::<Sha256>(&result).unwrap()).unwrap();

    let me = server.call_as(&key, Method::GET, "/api/v1/user/whoami", Value::Null).await.ok();
    assert_eq!(me["data"]["key_limits"], json!({"max_concurrent_sandboxes": 1, "max_tunnel_ttl_hours": 3}));
    server.call_as(&key, Method::POST, "/api/v1/sandbox", request(json!({}))).await.ok();
    let second = server.call_as(&key, Method::POST, "/api/v1/sandbox", request(json!({}))).await;
    assert_eq!(second.refusal(), (429, "limit_reached"));
    server.create(json!({})).await;
}

#[tokio::test]
async fn what_is_no_login() {
    let server = Server::start(SimNode::default()).await;
    for bad in ["", "nonsense", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", &"x".repeat(10_000)] {
        let body = json!({"encryptionPublicKey": bad});
        assert_eq!(server.post("/api/v1/auth_challenge/generate", body).await.refusal(), (422, "invalid_request"));
    }
    let gone = server.get("/api/v1/auth_challenge/status?challenge=NONE-NONE").await;
    assert_eq!(gone.refusal(), (404, "not_found"));
    let gone = server.post("/api/v1/auth_challenge/approve", json!({"challenge": "NONE-NONE"})).await;
    assert_eq!(gone.refusal(), (404, "not_found"));
}
