use super::{BodyError, Chunk, Responder};
use bytes::Bytes;
use http::{Response, StatusCode, header};
use serde::Serialize;
use std::io;
use warren_proto::guest::{GuestError, IMAGE_UNUSABLE, VOLUME_UNUSABLE};

/// Why a request outside of the Connect service failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub status: StatusCode,
    /// Stable code.
    pub code: &'static str,
    /// What happened, to which object.
    pub message: String,
}

impl Refusal {
    /// 400: the request itself is wrong.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, code: "bad_request", message: message.into() }
    }

    /// 422: the image lacks what its config names.
    pub fn image_unusable(problem: String) -> Self {
        let message = format!("the image cannot be started: {problem}");
        Self { status: StatusCode::UNPROCESSABLE_ENTITY, code: IMAGE_UNUSABLE, message }
    }

    /// 422: a volume cannot be mounted.
    pub fn volume_unusable(problem: String) -> Self {
        Self { status: StatusCode::UNPROCESSABLE_ENTITY, code: VOLUME_UNUSABLE, message: problem }
    }

    /// 503: the guest has no files yet.
    pub fn not_ready() -> Self {
        let message = "the guest is not initialised yet".to_owned();
        Self { status: StatusCode::SERVICE_UNAVAILABLE, code: "unavailable", message }
    }

    /// 500: a fault of the guest or the agent, in the step named.
    pub fn internal(step: &str, error: impl std::fmt::Display) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, code: "internal", message: format!("{step}: {error}") }
    }

    /// What an error of the file system about `object` means to the caller.
    pub fn of_file(object: &str, error: &io::Error) -> Self {
        let (status, code) = match error.raw_os_error().unwrap_or(0) {
            libc::ENOENT | libc::ENOTDIR => (StatusCode::NOT_FOUND, "no_such_file"),
            libc::EISDIR => (StatusCode::BAD_REQUEST, "is_a_directory"),
            libc::EACCES | libc::EPERM | libc::EROFS => (StatusCode::FORBIDDEN, "permission_denied"),
            libc::ENOSPC | libc::EDQUOT => (StatusCode::INSUFFICIENT_STORAGE, "no_space"),
            libc::EFBIG => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            libc::ENAMETOOLONG | libc::ELOOP | libc::EINVAL | libc::ENXIO => (StatusCode::BAD_REQUEST, "bad_request"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        Self { status, code, message: format!("{object}: {error}") }
    }

    /// As it is sent.
    pub fn into_error(self) -> GuestError {
        GuestError { code: self.code.to_owned(), message: self.message }
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        let (status, code) = match error {
            BodyError::Cut(_) => (StatusCode::BAD_REQUEST, "bad_request"),
            BodyError::TooLong(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            BodyError::Storage(_) => (StatusCode::INSUFFICIENT_STORAGE, "no_space"),
        };
        Self { status, code, message: error.to_string() }
    }
}

/// Answers with JSON, which must be small: it waits in memory until it is sent.
pub fn answer_json(respond: &mut Responder, status: StatusCode, value: &impl Serialize) {
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut head = Response::new(());
    *head.status_mut() = status;
    head.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    if let Ok(mut stream) = respond.send_response(head, false) {
        // The peer may have gone; then there is nobody to tell.
        let _ = stream.send_data(Chunk::uncounted(Bytes::from(body)), true);
    }
}

/// Answers with an error.
pub fn answer_refusal(respond: &mut Responder, refusal: Refusal) {
    answer_json(respond, refusal.status, &refusal.into_error());
}
