//! Servers on loopback.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};

const LOOPBACK: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// Serves each connection with `serve`.
pub(crate) async fn tcp<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
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

/// A port of loopback on which nobody answers, and which nobody else gets while this lives.
pub(crate) struct Nobody {
    pub(crate) address: SocketAddr,
    _tcp: TcpSocket,
    _udp: UdpSocket,
}

/// Reserves a port: a TCP socket that does not listen, and a UDP socket that talks to another peer.
pub(crate) async fn nobody() -> Nobody {
    loop {
        let tcp = TcpSocket::new_v4().unwrap();
        tcp.bind(LOOPBACK).unwrap();
        let address = tcp.local_addr().unwrap();
        if let Ok(udp) = UdpSocket::bind(address).await {
            udp.connect("127.0.0.1:9").await.unwrap();
            return Nobody { address, _tcp: tcp, _udp: udp };
        }
    }
}

/// The same port of loopback for datagrams and for connections.
pub(crate) async fn udp_and_tcp() -> (UdpSocket, TcpListener) {
    loop {
        let tcp = TcpListener::bind(LOOPBACK).await.unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
            return (udp, tcp);
        }
    }
}

/// Sends datagrams back.
pub(crate) async fn udp_echo() -> SocketAddr {
    let socket = UdpSocket::bind(LOOPBACK).await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = vec![0; 65536];
        while let Ok((n, from)) = socket.recv_from(&mut buffer).await {
            _ = socket.send_to(&buffer[..n], from).await;
        }
    });
    address
}
