//! Requests with the limits that all of them share: timeouts, redirects, retries when the registry is busy.

use super::endpoint::Endpoint;
use super::error::PullError;
use reqwest::header::RETRY_AFTER;
use reqwest::redirect::{Attempt, Policy};
use reqwest::{RequestBuilder, Response, StatusCode};
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Longest wait for the next bytes.
const STALLED_MAX: Duration = Duration::from_secs(60);
/// Redirects of one request.
const REDIRECTS_MAX: usize = 8;
/// Tries of a request that the registry is too busy for, or breaks at.
const TRIES_MAX: u32 = 4;
/// Wait before the second try; it doubles.
const BACKOFF: Duration = Duration::from_millis(500);
/// Longest wait before a try, whatever the registry asks for.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

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

/// Sends a request; again, after a wait, while the answer is 429 or 5xx. The last answer, whatever it is.
pub(super) async fn send(endpoint: &Endpoint, request: RequestBuilder) -> Result<Response, PullError> {
    let unreachable = |error| PullError::Unreachable { host: endpoint.host.clone(), error };
    for tried in 1..TRIES_MAX {
        let Some(copy) = request.try_clone() else { break };
        let response = copy.send().await.map_err(unreachable)?;
        let busy = response.status() == StatusCode::TOO_MANY_REQUESTS || response.status().is_server_error();
        if !busy {
            return Ok(response);
        }
        tokio::time::sleep(wait(&response, tried)).await;
    }
    request.send().await.map_err(unreachable)
}

fn wait(response: &Response, tried: u32) -> Duration {
    let asked = response.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok()).and_then(|v| v.trim().parse().ok());
    let own = BACKOFF * 2u32.saturating_pow(tried - 1);
    asked.map_or(own, Duration::from_secs).min(BACKOFF_MAX)
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
