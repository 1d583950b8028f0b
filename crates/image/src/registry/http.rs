//! Requests with the limits that all of them share: timeouts, redirects, retries when the registry is busy.

use super::backoff::Backoff;
use super::endpoint::Endpoint;
use super::errand::Errand;
use super::error::PullError;
use crate::progress::Wait;
use reqwest::header::RETRY_AFTER;
use reqwest::redirect::{Attempt, Policy};
use reqwest::{RequestBuilder, Response, StatusCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Longest wait for the next bytes.
const STALLED_MAX: Duration = Duration::from_secs(60);
/// Redirects of one request.
const REDIRECTS_MAX: usize = 8;

/// Two clients: proxies are not for this machine.
#[derive(Debug, Clone)]
pub(super) struct Http {
    far: reqwest::Client,
    near: reqwest::Client,
}

impl Http {
    pub(super) fn new() -> Result<Self, String> {
        let build = |builder: reqwest::ClientBuilder| builder.build().map_err(|e| e.to_string());
        let tls = tls()?;
        let base = || {
            reqwest::Client::builder()
                .user_agent(concat!("warren/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(CONNECT_MAX)
                .read_timeout(STALLED_MAX)
                .redirect(Policy::custom(redirect))
                .tls_backend_preconfigured(tls.clone())
        };
        Ok(Self { far: build(base())?, near: build(base().no_proxy())? })
    }

    /// The client for an endpoint.
    pub(super) fn client(&self, endpoint: &Endpoint) -> &reqwest::Client {
        if endpoint.is_loopback() { &self.near } else { &self.far }
    }
}

/// Sends a request; again, after a wait that the errand's progress shows, while the answer is 429 or 5xx. The last answer,
/// whatever it is.
pub(super) async fn send(errand: &Errand, endpoint: &Endpoint, request: RequestBuilder) -> Result<Response, PullError> {
    let unreachable = |error| PullError::Unreachable { host: endpoint.host.clone(), error };
    let mut backoff = Backoff::new(errand.rate_wait_max);
    loop {
        let Some(copy) = request.try_clone() else { return request.send().await.map_err(unreachable) };
        let response = copy.send().await.map_err(unreachable)?;
        let status = response.status();
        let Some(wait) = backoff.after(status.as_u16(), retry_after(&response), random()) else { return Ok(response) };
        let why = match status {
            StatusCode::TOO_MANY_REQUESTS => format!("rate limited by {}", endpoint.host),
            _ => format!("{} failed with status {}", endpoint.host, status.as_u16()),
        };
        let (image, attempt) = (errand.progress.reference(), backoff.attempt());
        tracing::warn!(image, attempt, wait_ms = wait.as_millis() as u64, "{why}; asking again");
        let _shown = errand.progress.wait(Wait::Registry { why, until: Instant::now() + wait, attempt });
        tokio::time::sleep(wait).await;
    }
}

/// How long the registry asks to be left alone; a date instead of seconds counts as nothing said.
pub(super) fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// From 0 to 1.
fn random() -> f64 {
    // The last bytes of a version-4 id are random.
    let [.., a, b, c, d] = uuid::Uuid::new_v4().into_bytes();
    f64::from(u32::from_be_bytes([a, b, c, d])) / f64::from(u32::MAX)
}

/// Blobs are often elsewhere; never from TLS to plain HTTP.
fn redirect(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    if attempt.previous().len() > REDIRECTS_MAX {
        return attempt.error("too many redirects");
    }
    let was_tls = attempt.previous().last().is_some_and(|url| url.scheme() == "https");
    if was_tls && attempt.url().scheme() != "https" {
        return attempt.error("a redirect from https to plain http");
    }
    attempt.follow()
}

/// Trust in the system's authorities, or those of `SSL_CERT_FILE`.
fn tls() -> Result<rustls::ClientConfig, String> {
    let mut roots = rustls::RootCertStore::empty();
    // A machine without certificates still reaches registries of its own.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
