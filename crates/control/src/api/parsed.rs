use super::ApiError;
use super::limits::{BODY_DRAIN_MAX, BODY_SECS_MAX};
use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::timeout;
use warren_proto::http::limits::BODY_LEN_MAX;
use warren_proto::http::{ErrorCode, FieldError, Invalid, Location};

/// A JSON body, whatever content type came with it. An empty body is read as `{}`.
pub(crate) struct Parsed<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Parsed<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let cut_off = |_| ApiError::fields(ErrorCode::InvalidBody, not_json("the body did not arrive in time"));
        let body = timeout(Duration::from_secs(BODY_SECS_MAX), read(request.into_body())).await.map_err(cut_off)??;
        parse(&body).map(Parsed).map_err(|invalid| ApiError::fields(ErrorCode::InvalidBody, invalid))
    }
}

async fn read(mut body: Body) -> Result<Bytes, ApiError> {
    let mut whole = BytesMut::new();
    let mut dropped = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::fields(ErrorCode::InvalidBody, not_json("the body was cut off")))?;
        let Ok(chunk) = frame.into_data() else { continue };
        if dropped == 0 && whole.len() + chunk.remaining() <= BODY_LEN_MAX {
            whole.extend_from_slice(&chunk);
        } else {
            dropped += chunk.remaining();
        }
        if dropped > BODY_DRAIN_MAX {
            break;
        }
    }
    if dropped == 0 {
        return Ok(whole.freeze());
    }
    Err(ApiError::new(ErrorCode::BodyTooLarge, format!("the body is larger than {BODY_LEN_MAX} bytes")))
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Invalid> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    let json = &mut serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut *json).map_err(|error| refusal(&error))?;
    json.end().map(|()| value).map_err(|_| not_json("nothing may follow the JSON value"))
}

fn refusal(error: &serde_path_to_error::Error<serde_json::Error>) -> Invalid {
    use serde_path_to_error::Segment;
    let inner = error.inner();
    if !inner.is_data() {
        return not_json(&format!("not JSON at line {} column {}", inner.line(), inner.column()));
    }
    let (msg, missing) = without_value(&inner.to_string());
    let mut field = FieldError::body("", msg);
    for segment in error.path() {
        match segment {
            Segment::Map { key } => field.loc.push(Location::Name(key.clone())),
            Segment::Seq { index } => field.loc.push(Location::Index(*index)),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    if let Some(name) = missing {
        field.loc.push(Location::Name(name));
        field.kind = "missing".to_owned();
    }
    field.into()
}

/// What serde expected, without the value that it met: that may be a secret. Also the name of a missing field.
fn without_value(message: &str) -> (String, Option<String>) {
    if let Some(rest) = message.strip_prefix("missing field `") {
        let name = rest.split('`').next().unwrap_or_default();
        return ("is required".to_owned(), Some(name.to_owned()));
    }
    let expected = message.rsplit_once(", expected ").map(|(_, expected)| expected);
    match expected.map(|text| text.rsplit_once(" at line ").map_or(text, |(text, _)| text)) {
        Some(expected) => (format!("expected {expected}"), None),
        None => ("is not as it should be".to_owned(), None),
    }
}

fn not_json(msg: &str) -> Invalid {
    let mut field = FieldError::body("", msg);
    field.kind = "json_invalid".to_owned();
    field.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use warren_proto::http::CreateSandbox;

    fn errors(body: &str) -> serde_json::Value {
        serde_json::to_value(parse::<CreateSandbox>(body.as_bytes()).unwrap_err().errors).unwrap()
    }

    #[test]
    fn faults_are_located_and_show_no_value() {
        let shown = errors(r#"{"name": "a", "secrets": {"TOKEN": 4711}}"#);
        assert_eq!(
            shown,
            serde_json::json!([{"loc": ["body", "secrets", "TOKEN"], "msg": "expected a string", "type": "value_error"}])
        );
        let shown = errors(r#"{"name": "a", "secrets": "hunter2, expected hunter3"}"#).to_string();
        assert!(shown.contains("expected a map") && !shown.contains("hunter"), "{shown}");
        assert_eq!(errors("{}")[0]["loc"], serde_json::json!(["body", "name"]));
        assert_eq!(errors("")[0]["type"], "missing");
        assert_eq!(errors("{\"name\": ")[0]["type"], "json_invalid");
        assert_eq!(errors("{\"name\": \"a\"} x")[0]["type"], "json_invalid");
        assert_eq!(errors(r#"{"name": "a", "timeout_minutes": 60.5}"#)[0]["msg"], "expected i64");
    }
}
