//! Asking resolvers: by UDP, and by TCP where the answer does not fit.

use super::query::Query;
use crate::limits;
use crate::stack::random;
use hickory_proto::op::{Message, ResponseCode};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

/// How often the whole list is gone through.
const ROUNDS: usize = 2;
/// Largest answer by UDP, bytes.
const UDP_BYTES_MAX: usize = u16::MAX as usize;

/// An upstream's answer.
pub(super) struct Answered {
    /// As it came.
    pub(super) bytes: Vec<u8>,
    /// The same, read.
    pub(super) message: Message,
}

/// Asks `upstreams` in turn until one answers; one that fails (SERVFAIL, REFUSED) counts only if no other does better.
pub(super) async fn ask(upstreams: &[SocketAddr], query: &Query) -> Option<Answered> {
    let mut failed = None;
    for &upstream in std::iter::repeat_n(upstreams, ROUNDS).flatten() {
        match timeout(limits::DNS_UPSTREAM_WAIT, ask_one(upstream, query)).await {
            Ok(Ok(answered)) if is_failure(&answered.message) => failed = Some(answered),
            Ok(Ok(answered)) => return Some(answered),
            Ok(Err(error)) => tracing::debug!(%upstream, %error, "upstream failed"),
            Err(_) => tracing::debug!(%upstream, "upstream is silent"),
        }
    }
    failed
}

fn is_failure(message: &Message) -> bool {
    matches!(message.metadata.response_code, ResponseCode::ServFail | ResponseCode::Refused | ResponseCode::NotImp)
}

async fn ask_one(upstream: SocketAddr, query: &Query) -> io::Result<Answered> {
    let id = random() as u16;
    let question = query.to_upstream(id);
    let answered = by_udp(upstream, query, id, &question).await?;
    if !answered.message.metadata.truncation {
        return Ok(answered);
    }
    // A resolver without TCP leaves the truncated answer, which is better than none.
    Ok(by_tcp(upstream, query, id, &question).await.unwrap_or(answered))
}

async fn by_udp(upstream: SocketAddr, query: &Query, id: u16, question: &[u8]) -> io::Result<Answered> {
    let any = match upstream {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(upstream).await?;
    socket.send(question).await?;
    let mut buffer = vec![0; UDP_BYTES_MAX];
    loop {
        let length = socket.recv(&mut buffer).await?;
        // A stray or forged datagram is passed over.
        if let Ok(message) = Message::from_vec(&buffer[..length])
            && query.is_answered_by(&message, id)
        {
            buffer.truncate(length);
            return Ok(Answered { bytes: buffer, message });
        }
    }
}

async fn by_tcp(upstream: SocketAddr, query: &Query, id: u16, question: &[u8]) -> io::Result<Answered> {
    let mut stream = TcpStream::connect(upstream).await?;
    stream.write_all(&framed(question)?).await?;
    let length = stream.read_u16().await?;
    let mut bytes = vec![0; length.into()];
    stream.read_exact(&mut bytes).await?;
    match Message::from_vec(&bytes) {
        Ok(message) if query.is_answered_by(&message, id) => Ok(Answered { bytes, message }),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// A message with its length in front, as it goes over TCP.
pub(super) fn framed(message: &[u8]) -> io::Result<Vec<u8>> {
    let length = u16::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok([&length.to_be_bytes(), message].concat())
}
