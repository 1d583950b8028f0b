//! Our own requests to the guest agent. Its answers are hostile: bounded in size and time.

use crate::body::{AnyBody, whole};
use crate::channel::GuestSender;
use crate::exchange::Exchange;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::{Method, Request};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use warren_proto::guest::{GuestError, GuestStatus, limits, paths};

/// Scheme and authority that HTTP/2 wants and nobody reads.
pub(crate) const GUEST_ORIGIN: &str = "http://guest";

/// Time to ask a guest for its last words.
pub(crate) const LAST_STATUS_WAIT: Duration = Duration::from_millis(500);
/// Longest wait for an init to switch its machine off: longer than any sandbox lives.
const POWER_OFF_WAIT: Duration = Duration::from_secs(10 * 365 * 86_400);

/// A guest that takes requests.
#[derive(Clone)]
pub(crate) struct Guest {
    /// Sends them.
    pub(crate) sender: GuestSender,
    /// The disk for large files, where the agent has it.
    pub(crate) exchange: Option<Exchange>,
}

/// Why a request of ours to the agent failed.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No answer in time.
    #[error("the guest agent did not answer {path} within {wait:?}")]
    Slow {
        /// What was asked.
        path: &'static str,
        /// How long we waited.
        wait: Duration,
    },
    /// The channel broke.
    #[error("the guest channel broke during {path}: {problem}")]
    Broken {
        /// What was asked.
        path: &'static str,
        /// How.
        problem: String,
    },
    /// The agent refused or failed.
    #[error("the guest agent failed {path}: {message}")]
    Failed {
        /// What was asked.
        path: &'static str,
        /// The agent's code; empty where it gave none.
        code: String,
        /// The agent's words.
        message: String,
    },
}

/// Sends one JSON request and reads one JSON answer.
pub async fn ask<A: DeserializeOwned>(
    mut sender: GuestSender,
    method: Method,
    path: &'static str,
    body: Option<&impl Serialize>,
    wait: Duration,
) -> Result<A, AskError> {
    let broken = |problem: String| AskError::Broken { path, problem };
    let bytes = match body {
        Some(body) => Bytes::from(serde_json::to_vec(body).map_err(|e| broken(e.to_string()))?),
        None => Bytes::new(),
    };
    let request: Request<AnyBody> = Request::builder()
        .method(method)
        .uri(format!("{GUEST_ORIGIN}{path}"))
        .header("content-type", "application/json")
        .body(whole(bytes))
        .map_err(|e| broken(e.to_string()))?;
    let exchange = async {
        sender.ready().await.map_err(|e| broken(e.to_string()))?;
        let response = sender.send_request(request).await.map_err(|e| broken(e.to_string()))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), limits::JSON_LEN_MAX).collect().await;
        let bytes = body.map_err(|e| broken(e.to_string()))?.to_bytes();
        if !status.is_success() {
            let error: Option<GuestError> = serde_json::from_slice(&bytes).ok();
            let (code, message) =
                error.map_or_else(|| (String::new(), format!("status {status}")), |e| (e.code, e.message));
            return Err(AskError::Failed { path, code, message });
        }
        serde_json::from_slice(&bytes).map_err(|e| broken(format!("unreadable answer: {e}")))
    };
    tokio::time::timeout(wait, exchange).await.map_err(|_| AskError::Slow { path, wait })?
}

/// Resolves when the start command, an init, has switched the machine off; never where there is none, or when the channel breaks.
pub(crate) async fn power_off(sender: Option<GuestSender>) {
    if let Some(sender) = sender {
        let path = paths::POWER_OFF;
        let told = ask::<serde_json::Value>(sender, Method::GET, path, None::<&()>, POWER_OFF_WAIT).await;
        if told.is_ok() {
            return;
        }
    }
    std::future::pending().await
}

/// How the guest is; `None` where it does not say in time.
pub(crate) async fn status(sender: GuestSender) -> Option<GuestStatus> {
    ask::<GuestStatus>(sender, Method::GET, paths::STATUS, None::<&()>, LAST_STATUS_WAIT).await.ok()
}
