//! A DNS session of the guest over TCP: our end of a flow whose other end is the guest.

use super::answer::{self, Answer, Transport};
use super::upstream::framed;
use crate::limits;
use crate::stack::Shared;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Starts a session; the stream returned is the guest's end. An error if there are [`limits::DNS_SESSIONS_MAX`] already.
pub(crate) fn session(shared: &Arc<Shared>) -> io::Result<UnixStream> {
    let permit = shared.dns_session().ok_or(io::ErrorKind::ConnectionRefused)?;
    let (guest, ours) = UnixStream::pair()?;
    let task = Arc::clone(shared);
    shared.spawn(async move {
        if let Err(error) = serve(&task, ours).await {
            tracing::debug!(%error, "DNS session ended");
        }
        drop(permit);
    });
    Ok(guest)
}

/// Answers questions one after the other until the guest ends, or is idle for long.
async fn serve(shared: &Arc<Shared>, mut stream: UnixStream) -> io::Result<()> {
    loop {
        let Ok(question) = timeout(limits::DNS_SESSION_IDLE, read(&mut stream)).await else { return Ok(()) };
        let Some(question) = question? else { return Ok(()) };
        let first = answer::at_once(shared, &mut shared.lock(), &question);
        let message = match first {
            Answer::Nothing => return Ok(()),
            Answer::Message(message) => message,
            Answer::Upstream(asked) => answer::from_upstream(shared, &asked, Transport::Tcp).await,
        };
        let answer = framed(&message)?;
        let Ok(written) = timeout(limits::DNS_SESSION_IDLE, stream.write_all(&answer)).await else { return Ok(()) };
        written?;
    }
}

/// One question; `None` if the guest has ended.
async fn read(stream: &mut UnixStream) -> io::Result<Option<Vec<u8>>> {
    let length = match stream.read_u16().await {
        Ok(length) => length,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut question = vec![0; length.into()];
    stream.read_exact(&mut question).await?;
    Ok(Some(question))
}
