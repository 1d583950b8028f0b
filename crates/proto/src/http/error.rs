use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Body of every refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What was wrong and what to do; a list for status 422.
    pub detail: Detail,
    /// Stable, from the closed list of [`ErrorCode`].
    pub code: String,
}

/// Text, or one entry per faulty field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Detail {
    /// For people.
    Text(String),
    /// For people, field by field.
    Fields(Vec<FieldError>),
}

/// What is wrong with one field of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// Where: `body`, `query` or `path`, then names and indices.
    pub loc: Vec<Location>,
    /// What would be right. Never the value: it may be a secret.
    pub msg: String,
    /// Kind of fault: `value_error`, `json_invalid`, `missing`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// One step of a path into a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Location {
    /// Place in a list, from 0.
    Index(usize),
    /// Name of a field.
    Name(String),
}

/// A request means nothing that could be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.summary())]
pub struct Invalid {
    /// At least one.
    pub errors: Vec<FieldError>,
}

impl FieldError {
    /// A fault of `body.field`.
    pub fn body(field: &str, msg: impl Into<String>) -> Self {
        Self::of("body", field, msg)
    }

    /// A fault of the query parameter `field`.
    pub fn query(field: &str, msg: impl Into<String>) -> Self {
        Self::of("query", field, msg)
    }

    /// A fault of `body.<path>[index].field`.
    pub fn at(path: &[&str], index: usize, field: &str, msg: impl Into<String>) -> Self {
        let mut error = Self::body(path.first().copied().unwrap_or_default(), msg);
        error.loc.extend(path.iter().skip(1).map(|name| Location::Name((*name).to_owned())));
        error.loc.push(Location::Index(index));
        if !field.is_empty() {
            error.loc.push(Location::Name(field.to_owned()));
        }
        error
    }

    fn of(part: &str, field: &str, msg: impl Into<String>) -> Self {
        let loc = [part, field].into_iter().filter(|name| !name.is_empty());
        FieldError {
            loc: loc.map(|name| Location::Name(name.to_owned())).collect(),
            msg: msg.into(),
            kind: "value_error".to_owned(),
        }
    }
}

impl From<FieldError> for Invalid {
    fn from(error: FieldError) -> Self {
        Invalid { errors: vec![error] }
    }
}

impl From<warren_model::BadSpec> for FieldError {
    fn from(bad: warren_model::BadSpec) -> Self {
        FieldError::body(bad.field, bad.problem)
    }
}

impl Invalid {
    fn summary(&self) -> String {
        let line = |e: &FieldError| {
            let steps = e.loc.iter().skip(1).map(|step| match step {
                Location::Index(i) => i.to_string(),
                Location::Name(name) => name.clone(),
            });
            format!("{}: {}", steps.collect::<Vec<_>>().join("."), e.msg)
        };
        self.errors.iter().map(line).collect::<Vec<_>>().join("; ")
    }
}

/// Declares the closed list: variant, HTTP status, code, meaning, what to do.
macro_rules! error_codes {
    ($($variant:ident $status:literal $code:literal $meaning:literal $remedy:literal;)*) => {
        /// The closed list of codes in refusals; `docs/errors.md` is this list.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $(#[doc = $meaning] $variant,)*
        }

        impl ErrorCode {
            /// All of them, in the order of the document.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant,)*];

            /// HTTP status that goes with it.
            pub fn status(self) -> u16 {
                match self { $(ErrorCode::$variant => $status,)* }
            }

            /// The word in the answer.
            pub fn as_str(self) -> &'static str {
                match self { $(ErrorCode::$variant => $code,)* }
            }

            /// What happened.
            pub fn meaning(self) -> &'static str {
                match self { $(ErrorCode::$variant => $meaning,)* }
            }

            /// What the caller can do.
            pub fn remedy(self) -> &'static str {
                match self { $(ErrorCode::$variant => $remedy,)* }
            }
        }
    };
}

error_codes! {
    Unauthorized 401 "unauthorized" "The API key is missing, unknown or revoked." "Set `PRIME_API_KEY` to a valid key; the owner's is in `DIR/api-key`.";
    Forbidden 403 "forbidden" "The key is valid, but this is not the caller's to see or change." "Ask an administrator, or use another team or key.";
    NotFound 404 "not_found" "There is no such object, or the caller may not know of it." "Check the id; ended sandboxes are kept for 7 days.";
    RouteNotFound 404 "route_not_found" "The server has no such path." "Check the base URL; `GET /openapi.json` lists all paths.";
    MethodNotAllowed 405 "method_not_allowed" "The path exists, the method does not." "See `GET /openapi.json`.";
    Conflict 409 "conflict" "The object exists already or is in the way." "See the message; in place of a name that is taken, use another.";
    IdempotencyConflict 409 "idempotency_conflict" "The idempotency key was used within 24 hours for a different request." "Use a new key for a new request.";
    NotRunning 409 "not_running" "The sandbox does not run, so this cannot be done with it." "Wait for RUNNING, resume it if it is PAUSED, or make a new one.";
    SnapshotNotReady 409 "snapshot_not_ready" "The snapshot is still being taken, or could not be." "Wait until it is READY, or take another one.";
    SnapshotIncompatible 409 "snapshot_incompatible" "The snapshot was taken on another version of QEMU, kernel, agent or processor." "Take it again, or restore a checkpoint.";
    SnapshotFailed 503 "snapshot_failed" "The node, or the guest, could not do it; the sandbox runs on if it ran." "See the message, then repeat.";
    VolumeReadOnly 400 "volume_read_only" "The sandbox has the volume to read only, so it has nothing to publish." "Attach it without read_only.";
    VolumeInUse 409 "volume_in_use" "A sandbox that has not ended has the volume, so it is not deleted." "Delete the sandbox first.";
    VolumePublishPending 409 "volume_publish_pending" "Another publish of the volume is not over." "Wait until it is DURABLE or FAILED.";
    VolumeHeadMoved 409 "volume_head_moved" "Another sandbox has published the volume since this one was created." "Start from what it published, or publish with force.";
    CheckpointNotReady 409 "checkpoint_not_ready" "The checkpoint is pending or failed, so nothing can be made from it." "Wait for DURABLE, or make another one.";
    CheckpointInUse 409 "checkpoint_in_use" "The checkpoint is pending, or the newest of a sandbox that lives, so it is not deleted." "Wait until it is durable, or delete the sandbox first.";
    BodyTooLarge 413 "body_too_large" "The request body is larger than 4 MiB, or a build's context than 2 GiB." "Send less; files go through the gateway's upload.";
    InvalidBody 422 "invalid_body" "The body is not JSON of the expected form; `detail` is a list." "Mend the fields that `loc` names.";
    InvalidRequest 422 "invalid_request" "A value is out of bounds or does not fit the others; `detail` is a list." "Mend the fields that `loc` names.";
    LimitReached 429 "limit_reached" "The account has as many sandboxes or images as it may have." "Delete some, or ask for a higher limit.";
    Internal 500 "internal" "A fault of the server." "See the server's log for the request's time and path.";
    NotOffered 501 "not_offered" "This server does not offer the function." "Do without it, or use a newer server.";
    NodeUnavailable 503 "node_unavailable" "The node that runs the sandbox, or the guest in it, did not answer." "Repeat the call.";
    TimedOut 504 "timed_out" "The call did not end within its limit; what it began goes on." "Ask for the object's state, then repeat.";
    ImageBadReference 422 "image_bad_reference" "The image reference or the path to import is malformed." "Write `[registry/]name[:tag][@digest]`.";
    ImageNotFound 404 "image_not_found" "Neither this server nor the registry has the image." "Check name and tag; `warren images list` shows what is here.";
    ImageAccessDenied 403 "image_access_denied" "The registry refused access." "Save a login with `warren registry add HOST`, or mend the one that is saved.";
    ImageWrongArchitecture 422 "image_wrong_architecture" "The image has no variant for this machine." "Use an image for this architecture.";
    ImageDigestMismatch 502 "image_digest_mismatch" "Content did not match its digest and was thrown away." "Repeat; if it stays so, the registry or mirror is broken.";
    ImageBadContent 422 "image_bad_content" "The image's content is malformed or tries to escape." "Rebuild the image.";
    ImageIndexTooDeep 422 "image_index_too_deep" "The image is an index of indexes, nested deeper than 4." "Push the image with fewer indexes around it.";
    ImageRegistryUnreachable 502 "image_registry_unreachable" "The registry did not answer." "Check the network, or configure a mirror.";
    ImageRateLimited 503 "image_rate_limited" "The registry limits the rate of pulls, also after waiting." "Wait, save a login with `warren registry add HOST`, or configure a mirror.";
    ImageNoSpace 507 "image_no_space" "The server's disk is full." "Remove images, or give it more disk.";
    ImageFailed 500 "image_failed" "Making the image ready failed for another reason." "See the message and the server's log.";
}

impl ErrorCode {
    /// The public code for the stable code of a `node::ImageError`.
    pub fn of_image_error(code: &str) -> ErrorCode {
        let matching = |c: &&ErrorCode| c.as_str().strip_prefix("image_") == Some(code);
        ErrorCode::ALL.iter().copied().find(|c| matching(&c)).unwrap_or(ErrorCode::ImageFailed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn codes_are_unique_and_refusals() {
        let words: HashSet<_> = ErrorCode::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(words.len(), ErrorCode::ALL.len());
        assert!(ErrorCode::ALL.iter().all(|c| (400..600).contains(&c.status())));
    }

    #[test]
    fn image_codes_are_all_known() {
        let of_node =
            ["bad_reference", "not_found", "access_denied", "wrong_architecture", "digest_mismatch", "bad_content"];
        for code in
            of_node.into_iter().chain(["index_too_deep", "registry_unreachable", "rate_limited", "no_space", "failed"])
        {
            assert_eq!(ErrorCode::of_image_error(code).as_str(), format!("image_{code}"));
        }
        assert_eq!(ErrorCode::of_image_error("new"), ErrorCode::ImageFailed);
    }

    #[test]
    fn a_field_error_reads_as_the_clients_expect() {
        let json = serde_json::to_value(FieldError::at(&["jobs"], 2, "job_id", "bad")).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"loc": ["body", "jobs", 2, "job_id"], "msg": "bad", "type": "value_error"})
        );
    }
}
