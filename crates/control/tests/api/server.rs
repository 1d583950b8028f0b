//! One control plane over a simulated node, called without a socket.

use axum::body::Body;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tower::ServiceExt;
use warren_control::{App, Config};
use warren_model::SandboxId;
use warren_testkit::node::SimNode;

/// Longest wait for something that must come, seconds.
const WAIT_SECS_MAX: u64 = 30;

/// The server under test.
pub(crate) struct Server {
    pub(crate) dir: TempDir,
    pub(crate) node: SimNode,
    pub(crate) app: App,
    pub(crate) config: Config,
    pub(crate) key: String,
}

/// An answer: status and JSON body.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Value,
}

impl Server {
    pub(crate) async fn start(node: SimNode) -> Self {
        Self::with(node, Config::default()).await
    }

    pub(crate) async fn with(node: SimNode, config: Config) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let app = App::open(dir.path(), Arc::new(node.clone()), config.clone()).await.unwrap();
        let key = app.owner_key().to_owned();
        Self { dir, node, app, config, key }
    }

    /// Ends the control plane and opens it again; the node lives on.
    pub(crate) async fn restart(self) -> Self {
        self.app.shutdown().await;
        let Self { dir, node, config, key, .. } = self;
        let app = App::open(dir.path(), Arc::new(node.clone()), config.clone()).await.unwrap();
        assert_eq!(app.owner_key(), key);
        Self { dir, node, app, config, key }
    }

    /// Calls as the owner.
    pub(crate) async fn call(&self, method: Method, path: &str, body: Value) -> Answer {
        self.call_as(&self.key, method, path, body).await
    }

    /// Calls with a key; an empty one sends no header. `Value::Null` sends no body.
    pub(crate) async fn call_as(&self, key: &str, method: Method, path: &str, body: Value) -> Answer {
        let mut request = Request::builder().method(method).uri(path).header("host", "warren.test:8080");
        // As the clients do, also without a body.
        request = request.header("content-type", "application/json");
        if !key.is_empty() {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
        self.send(request.body(body).unwrap()).await
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.app.router().oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        // No content is none.
        let body = if bytes.is_empty() { &b"null"[..] } else { &bytes[..] };
        let body = serde_json::from_slice(body)
            .unwrap_or_else(|_| panic!("{status}: not JSON: {:?}", String::from_utf8_lossy(&bytes)));
        Answer { status, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.call(Method::POST, path, body).await
    }

    /// Creates with the fields of `more` and answers the sandbox.
    pub(crate) async fn create(&self, more: Value) -> Value {
        let answer = self.post("/api/v1/sandbox", request(more)).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        answer.body
    }

    pub(crate) async fn sandbox(&self, id: &str) -> Value {
        self.get(&format!("/api/v1/sandbox/{id}")).await.ok()
    }

    pub(crate) async fn delete(&self, id: &str) -> Answer {
        self.call(Method::DELETE, &format!("/api/v1/sandbox/{id}"), Value::Null).await
    }

    /// Waits until a sandbox shows a status.
    pub(crate) async fn until_status(&self, id: &str, status: &str) -> Value {
        until(&format!("{id} is {status}"), || async {
            let sandbox = self.sandbox(id).await;
            (sandbox["status"] == status).then_some(sandbox)
        })
        .await
    }

    /// A second user; answers id and key.
    pub(crate) async fn user(&self, slug: &str) -> (String, String) {
        let made = self.post("/api/v1/admin/users", json!({"slug": slug})).await.ok();
        (text(&made["userId"]), text(&made["apiKey"]))
    }
}

impl Answer {
    /// The body of a success.
    pub(crate) fn ok(self) -> Value {
        assert!(self.status.is_success(), "{self:?}");
        self.body
    }

    /// Status and code of a refusal.
    pub(crate) fn refusal(&self) -> (u16, &str) {
        (self.status.as_u16(), self.body["code"].as_str().unwrap_or_default())
    }
}

/// A create body with the least, and what `more` says.
pub(crate) fn request(more: Value) -> Value {
    let mut body = json!({"name": "test", "docker_image": "busybox"});
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}")).to_owned()
}

pub(crate) fn id(sandbox: &Value) -> SandboxId {
    SandboxId::parse(sandbox["id"].as_str().unwrap()).unwrap()
}

/// Waits, bounded, until `look` answers something.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(what: &str, look: impl Fn() -> F) -> T {
    let poll = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(WAIT_SECS_MAX), poll).await.unwrap_or_else(|_| panic!("never: {what}"))
}
