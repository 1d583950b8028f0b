use crate::reconcile::driver::chain;
use crate::store::StoreError;
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use warren_proto::http::{Detail, ErrorBody, ErrorCode, FieldError, Invalid};
use warren_proto::node::{ImageError, NodeError, SnapshotError};

/// A refusal: a code of the closed list and what the caller may know.
#[derive(Debug)]
pub(crate) struct ApiError {
    code: ErrorCode,
    detail: Detail,
}

impl ApiError {
    pub(crate) fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        ApiError { code, detail: Detail::Text(detail.into()) }
    }

    /// Fields that are not as they should be.
    pub(crate) fn fields(code: ErrorCode, invalid: Invalid) -> Self {
        ApiError { code, detail: Detail::Fields(invalid.errors) }
    }

    /// A fault of ours: the log has the cause, the caller does not.
    pub(crate) fn internal(error: &dyn std::error::Error) -> Self {
        tracing::error!(error = chain(error), "request failed");
        Self::new(ErrorCode::Internal, "internal error; the server's log has the cause")
    }
}

impl ApiError {
    /// Whether the caller's request is at fault, not the server.
    pub(super) fn is_refusal(&self) -> bool {
        self.code.status() < 500
    }

    /// Whether the same request may be accepted later.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self.code.status(), 429 | 503)
    }

    /// Its code.
    pub(crate) fn code(&self) -> ErrorCode {
        self.code
    }

    /// The detail as one text.
    pub(crate) fn text(&self) -> String {
        match &self.detail {
            Detail::Text(text) => text.clone(),
            Detail::Fields(errors) => Invalid { errors: errors.clone() }.to_string(),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(ErrorBody { detail: self.detail, code: self.code.as_str().to_owned() })).into_response()
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Taken(what) => ApiError::new(ErrorCode::Conflict, format!("{what} is taken")),
            other => ApiError::internal(&other),
        }
    }
}

impl From<std::io::Error> for ApiError {
    fn from(error: std::io::Error) -> Self {
        ApiError::internal(&error)
    }
}

impl From<Invalid> for ApiError {
    fn from(invalid: Invalid) -> Self {
        ApiError::fields(ErrorCode::InvalidRequest, invalid)
    }
}

impl From<FieldError> for ApiError {
    fn from(error: FieldError) -> Self {
        Invalid::from(error).into()
    }
}

impl From<NodeError> for ApiError {
    fn from(error: NodeError) -> Self {
        let code = match error {
            NodeError::NotFound(_) | NodeError::NotRunning { .. } => ErrorCode::NotRunning,
            NodeError::NoAnswer { .. } => ErrorCode::NodeUnavailable,
        };
        ApiError::new(code, error.to_string())
    }
}

impl From<SnapshotError> for ApiError {
    fn from(error: SnapshotError) -> Self {
        let code = match error {
            SnapshotError::NoSandbox(_) => ErrorCode::NotRunning,
            SnapshotError::NoSnapshot(_) => ErrorCode::NotFound,
            SnapshotError::Conflict { .. } => ErrorCode::NotRunning,
            SnapshotError::Incompatible { .. } => ErrorCode::SnapshotIncompatible,
            SnapshotError::Failed(_) => ErrorCode::SnapshotFailed,
        };
        ApiError::new(code, error.to_string())
    }
}

impl From<ImageError> for ApiError {
    fn from(error: ImageError) -> Self {
        ApiError::new(ErrorCode::of_image_error(error.code), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    /// `docs/errors.md` is this list; after a change, write what the test prints.
    #[test]
    fn the_document_has_all_codes() {
        let document = include_str!("../../../../docs/errors.md");
        let mut table = String::from("| code | status | what happened | what to do |\n| --- | --- | --- | --- |\n");
        for code in ErrorCode::ALL {
            let (status, meaning, remedy) = (code.status(), code.meaning(), code.remedy());
            writeln!(table, "| `{}` | {status} | {meaning} | {remedy} |", code.as_str()).unwrap();
        }
        assert!(document.contains(&table), "docs/errors.md must contain:\n{table}");
    }

    #[test]
    fn the_document_has_all_error_types() {
        let document = include_str!("../../../../docs/errors.md");
        use warren_model::EndReason::*;
        let ends = [
            Deleted,
            Timeout,
            Idle,
            ImagePullFailed,
            ImageUnusable,
            VolumeUnusable,
            StartFailed,
            VmmDied,
            GuestDied,
            PoweredOff,
            OutOfMemory,
            NodeLost,
        ];
        for end in ends {
            let kind = end.error_type().map_or("–".to_owned(), |kind| format!("`{}`", kind.as_str()));
            let fault = if end.infra_fault() { "yes" } else { "no" };
            let line = format!("| `{}` | {kind} | {fault} |", end.status().as_str());
            assert!(document.contains(&line), "docs/errors.md must contain: {line}");
        }
    }
}
