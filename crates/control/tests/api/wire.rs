//! The same over a socket, as clients come.

use crate::server::{Server, request, until};
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use warren_testkit::node::{Life, SimNode};

async fn listen(server: &Server) -> (tokio::task::JoinHandle<()>, std::net::SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = server.app.router();
    let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (task, address)
}

fn head(server: &Server, line: &str, body: &str) -> String {
    let key = &server.key;
    format!(
        "{line} HTTP/1.1\r\nHost: 127.0.0.1:9\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn exchange(address: std::net::SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn health_needs_no_key_and_bodies_go_with_every_method() {
    let server = Server::start(SimNode::default()).await;
    let (task, address) = listen(&server).await;
    let health = exchange(address, "GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await;
    assert!(health.starts_with("HTTP/1.1 200 ") && health.contains(r#""status":"ok""#), "{health}");
    let page =
        exchange(address, "GET /dashboard/tokens/challenge?code=A HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            .await;
    assert!(page.contains("text/html") && page.contains("Approve"), "{page}");
    let made = exchange(address, &head(&server, "POST /api/v1/sandbox", &request(json!({})).to_string())).await;
    assert!(made.contains(r#""gateway_url":"http://127.0.0.1:9/gw""#), "{made}");
    let bulk = exchange(address, &head(&server, "DELETE /api/v1/sandbox", r#"{"all_users":true}"#)).await;
    assert!(bulk.starts_with("HTTP/1.1 200 ") && bulk.contains(r#""message":"1 deleted"#), "{bulk}");
    let large = format!(r#"{{"name":"{}"}}"#, "x".repeat(6 << 20));
    let refused = exchange(address, &head(&server, "POST /api/v1/sandbox", &large)).await;
    assert!(refused.starts_with("HTTP/1.1 413 ") && refused.contains("body_too_large"), "{refused}");
    task.abort();
}

#[tokio::test]
async fn a_client_that_goes_away_leaves_nothing_half_done() {
    let node = SimNode::new(|_| Life { accept: Duration::from_millis(300), ..Life::default() });
    let server = Server::start(node).await;
    let (task, address) = listen(&server).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let body = request(json!({"labels": ["left"]})).to_string();
    stream.write_all(head(&server, "POST /api/v1/sandbox", &body).as_bytes()).await.unwrap();
    until("the node is asked", || async { (server.node.creates() > 0).then_some(()) }).await;
    drop(stream);
    let made = until("it runs", || async {
        let list = server.get("/api/v1/sandbox?labels=left&status=RUNNING").await.ok();
        list["sandboxes"].get(0).cloned()
    })
    .await;
    server.delete(made["id"].as_str().unwrap()).await.ok();
    assert!(server.node.live().is_empty());
    task.abort();
}
