use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// HTTP/2: streams at once on one connection; the public client puts 90 on each.
const STREAMS_MAX: u32 = 4096;
/// HTTP/2: window of one stream, bytes.
const STREAM_WINDOW: u32 = 1 << 20;
/// HTTP/2: window of one connection, bytes. More than the public client's 90 streams can fill: uploads that wait for their guest do not stop the others.
const CONNECTION_WINDOW: u32 = 128 << 20;
/// HTTP/2: time between two pings of a silent connection, and the longest wait for their answer.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_WAIT_MAX: Duration = Duration::from_secs(60);
/// HTTP/1.1: longest time between two requests. The public client keeps idle connections up to 300 s and does not repeat a
/// command on one that the server has closed.
const IDLE_MAX: Duration = Duration::from_secs(3600);
/// Longest TLS handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted for lack of something.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// All connections of clients.
pub(super) struct Connections {
    router: Router,
    tls: Option<TlsAcceptor>,
    tasks: TaskTracker,
    ending: CancellationToken,
}

impl Connections {
    /// None yet.
    pub(super) fn new(router: Router, tls: Option<TlsAcceptor>) -> Self {
        Self { router, tls, tasks: TaskTracker::new(), ending: CancellationToken::new() }
    }

    /// Takes connections for ever. To stop, drop the future.
    pub(super) async fn accept(&self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.spawn(stream),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Lets requests that are under way come to their end, at most for `limit`.
    pub(super) async fn drain(&self, limit: Duration) {
        self.ending.cancel();
        self.tasks.close();
        if tokio::time::timeout(limit, self.tasks.wait()).await.is_err() {
            tracing::info!(
                connections = self.tasks.len(),
                "ended with connections open; their commands go on in the sandboxes"
            );
        }
    }

    fn spawn(&self, stream: TcpStream) {
        // Small frames are answers that somebody waits for.
        let _ = stream.set_nodelay(true);
        let (router, tls, ending) = (self.router.clone(), self.tls.clone(), self.ending.clone());
        self.tasks.spawn(async move {
            match tls {
                None => serve(stream, router, ending).await,
                Some(acceptor) => match tokio::time::timeout(HANDSHAKE_MAX, acceptor.accept(stream)).await {
                    Ok(Ok(stream)) => serve(stream, router, ending).await,
                    Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                    Err(_) => tracing::debug!("TLS handshake took too long"),
                },
            }
        });
    }
}

async fn serve<S>(stream: S, router: Router, ending: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let builder = builder();
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = ending.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        // Clients come and go; what went wrong for a request is told by its handler.
        tracing::debug!(%error, "a connection ended by a fault");
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_WAIT_MAX);
    builder
}

#[cfg(test)]
mod tests;
