//! Servers on loopback.

use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// Serves each connection with `serve`.
pub(crate) async fn tcp<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    address
}

/// Sends back what comes, and ends when the other side does.
pub(crate) async fn echo() -> SocketAddr {
    tcp(|mut stream| async move {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(n @ 1..) = stream.read(&mut buffer).await {
            if stream.write_all(&buffer[..n]).await.is_err() {
                return;
            }
        }
    })
    .await
}

/// A port of loopback on which nobody listens.
pub(crate) async fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

/// Sends datagrams back.
pub(crate) async fn udp_echo() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = vec![0; 65536];
        while let Ok((n, from)) = socket.recv_from(&mut buffer).await {
            _ = socket.send_to(&buffer[..n], from).await;
        }
    });
    address
}
