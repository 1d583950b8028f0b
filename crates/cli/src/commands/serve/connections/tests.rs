use super::*;
use axum::routing::get;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::{Request, Response, body::Incoming};
use std::net::SocketAddr;

/// A server on a free port; ends with the runtime of the test.
async fn started() -> (std::sync::Arc<Connections>, SocketAddr) {
    let router = Router::new().route("/", get(async || "hello"));
    let connections = std::sync::Arc::new(Connections::new(router, None));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let serving = connections.clone();
    tokio::spawn(async move { serving.accept(listener).await });
    (connections, address)
}

async fn text(response: Response<Incoming>) -> Bytes {
    response.into_body().collect().await.expect("a body").to_bytes()
}

fn request() -> Request<Empty<Bytes>> {
    Request::get("http://test/").header("host", "test").body(Empty::new()).expect("a request")
}

#[tokio::test]
async fn both_protocols_are_spoken_on_one_port() {
    let (_connections, address) = started().await;
    let stream = TokioIo::new(TcpStream::connect(address).await.expect("connected"));
    let (mut h1, driving) = hyper::client::conn::http1::handshake(stream).await.expect("HTTP/1.1");
    tokio::spawn(driving);
    assert_eq!(text(h1.send_request(request()).await.expect("an answer")).await, "hello");

    let stream = TokioIo::new(TcpStream::connect(address).await.expect("connected"));
    let (mut h2, driving) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.expect("HTTP/2");
    tokio::spawn(driving);
    assert_eq!(text(h2.send_request(request()).await.expect("an answer")).await, "hello");
}

#[tokio::test]
async fn an_idle_connection_does_not_hold_the_end_up() {
    let (connections, address) = started().await;
    let stream = TokioIo::new(TcpStream::connect(address).await.expect("connected"));
    let (mut h1, driving) = hyper::client::conn::http1::handshake(stream).await.expect("HTTP/1.1");
    let driving = tokio::spawn(driving);
    assert_eq!(text(h1.send_request(request()).await.expect("an answer")).await, "hello");
    connections.drain(Duration::from_secs(10)).await;
    assert!(connections.tasks.is_empty());
    let closed = driving.await.expect("the client's own task lives");
    assert!(closed.is_ok());
}
