//! What the data plane answers when it does not pass a request on. Commands and files spell the same facts differently.

use crate::sandbox::Handle;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};
use warren_model::{SandboxId, Status};
use warren_proto::guest::command_session::Code;

/// Why a request was not passed on.
pub(crate) enum Refusal {
    /// No valid token for this sandbox.
    Unauthenticated,
    /// It has ended, or never was.
    Gone { id: SandboxId, why: Option<String> },
    /// Not yet, or not now.
    NotRunning { id: SandboxId, status: Status, handle: Box<Handle> },
    /// The machine that it went to was put back to a snapshot.
    Reset { generation: u64 },
    /// The way to the guest broke.
    Unavailable(String),
    /// The request itself is wrong.
    BadRequest(String),
    /// No such path.
    NoRoute,
}

impl Refusal {
    fn message(&self) -> String {
        match self {
            Refusal::Unauthenticated => {
                "the token is missing, over, or not for this sandbox; ask /auth for a new one".to_owned()
            }
            Refusal::Gone { id, why: Some(why) } => format!("sandbox {id} has ended: {why}"),
            Refusal::Gone { id, why: None } => format!("sandbox {id} has ended or never was"),
            Refusal::NotRunning { id, status: Status::Paused, .. } => {
                format!("sandbox {id} is PAUSED; resume it with POST /sandbox/{id}/resume")
            }
            Refusal::NotRunning { id, status, .. } => {
                format!("sandbox {id} is {}; wait until it is RUNNING", status.as_str())
            }
            Refusal::Reset { generation } => was_reset(*generation),
            Refusal::Unavailable(problem) => format!("the guest could not be reached: {problem}"),
            Refusal::BadRequest(problem) => problem.clone(),
            Refusal::NoRoute => "the data plane has no such path".to_owned(),
        }
    }

    fn code(&self) -> Code {
        match self {
            Refusal::Unauthenticated => Code::Unauthenticated,
            Refusal::Gone { .. } => Code::NotFound,
            Refusal::NotRunning { .. } | Refusal::Unavailable(_) => Code::Unavailable,
            Refusal::Reset { .. } => Code::FailedPrecondition,
            Refusal::BadRequest(_) => Code::InvalidArgument,
            Refusal::NoRoute => Code::Unimplemented,
        }
    }

    /// As the Connect protocol writes errors.
    pub(super) fn into_rpc(self) -> Response {
        let code = self.code();
        let status = StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        answer(status, &json!({ "code": code, "message": self.message() }))
    }

    /// As file operations write errors.
    pub(super) fn into_json(self) -> Response {
        let (status, code) = match &self {
            Refusal::Unauthenticated => (StatusCode::UNAUTHORIZED, "unauthenticated"),
            Refusal::Gone { .. } => (StatusCode::GONE, "sandbox_terminated"),
            Refusal::NotRunning { .. } => (StatusCode::CONFLICT, "sandbox_not_running"),
            Refusal::Reset { .. } => (StatusCode::CONFLICT, "sandbox_reset"),
            Refusal::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            Refusal::BadRequest(_) => (StatusCode::BAD_REQUEST, "bad_request"),
            Refusal::NoRoute => (StatusCode::NOT_FOUND, "no_route"),
        };
        answer(status, &json!({ "error": code, "code": code, "detail": self.message() }))
    }
}

/// What happened to what ran before a reset.
pub(super) fn was_reset(generation: u64) -> String {
    format!("the sandbox was reset to a snapshot (generation {generation}): what ran before is gone")
}

/// A JSON answer.
pub(super) fn answer(status: StatusCode, value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
