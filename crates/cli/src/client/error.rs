use crate::failure::Failure;
use serde::Deserialize;
use std::error::Error;
use warren_proto::guest::command_session::{Code, ConnectError};
use warren_proto::http::{Detail, ErrorCode, Location};

/// Longest text of an answer without a usable error body that is repeated to the user, characters.
const FOREIGN_TEXT_MAX: usize = 500;

/// Why a call of the REST API failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("cannot prepare calls: {problem}")]
    Setup { problem: String },
    #[error("cannot reach {server}: {problem}")]
    Unreachable { server: String, problem: String },
    #[error("no answer from {server} in time")]
    TimedOut { server: String },
    #[error("the connection to {server} broke: {problem}")]
    Interrupted { server: String, problem: String },
    #[error("{server} does not accept the API key")]
    Unauthorized { server: String, with_key: bool },
    #[error("{detail} (HTTP {status})")]
    Refused { status: u16, code: Option<String>, detail: String },
    #[error("{server} gave an answer that is not understood: {problem}")]
    BadAnswer { server: String, problem: String },
}

/// Why a call of a sandbox's gateway failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GatewayError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("{}", .0.message)]
    Session(ConnectError),
    #[error("the connection to the sandbox broke: {problem}")]
    Cut { problem: String },
    #[error("the sandbox gave an answer that is not understood: {problem}")]
    BadAnswer { problem: String },
    #[error("cannot {action} {path}: {problem}")]
    Local { action: &'static str, path: String, problem: String },
}

impl ApiError {
    /// For a request that got no answer.
    pub(super) fn transport(server: &str, error: &reqwest::Error) -> Self {
        let server = server.to_owned();
        match error {
            e if e.is_connect() => ApiError::Unreachable { server, problem: root(error) },
            e if e.is_timeout() => ApiError::TimedOut { server },
            _ => ApiError::Interrupted { server, problem: chain(error) },
        }
    }

    /// From the body of an answer with an error status, ours or a proxy's.
    pub(super) fn refused(status: u16, body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct Body {
            #[serde(default)]
            detail: Option<Detail>,
            #[serde(default)]
            message: Option<String>,
            #[serde(default)]
            error: Option<String>,
            #[serde(default)]
            code: Option<String>,
        }
        let parsed = serde_json::from_slice::<Body>(body).ok();
        let code = parsed.as_ref().and_then(|body| body.code.clone());
        let detail = parsed.and_then(|body| body.detail.map(|d| text_of(&d)).or(body.message).or(body.error));
        let detail = detail.unwrap_or_else(|| foreign_text(body));
        ApiError::Refused { status, code, detail }
    }

    /// Whether the server gave up waiting for work that goes on.
    pub(crate) fn is_server_timeout(&self) -> bool {
        matches!(self, ApiError::Refused { status: 504, .. } | ApiError::TimedOut { .. })
    }

    /// Whether it is unknown if the call was done, so that an idempotent one is worth repeating.
    pub(crate) fn is_lost(&self) -> bool {
        matches!(self, ApiError::Interrupted { .. } | ApiError::Refused { status: 502..=504, .. })
    }

    /// Whether the sandbox may have ended.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, ApiError::Interrupted { .. } | ApiError::Refused { status: 404 | 409 | 410 | 502, .. })
    }

    /// The stable code of a refusal.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            ApiError::Refused { code, .. } => code.as_deref(),
            _ => None,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            ApiError::Setup { .. } | ApiError::BadAnswer { .. } => None,
            ApiError::Unreachable { problem, .. } if problem.contains("certificate") => {
                Some("trust its authority with --ca-cert or WARREN_CA_CERT".to_owned())
            }
            ApiError::Unreachable { .. } => {
                Some("is the server running (`warren serve`), and is it this one (--url, WARREN_URL)?".to_owned())
            }
            ApiError::TimedOut { .. } | ApiError::Interrupted { .. } => {
                Some("try again; the server's log says more if it stays so".to_owned())
            }
            ApiError::Unauthorized { with_key, .. } => Some(match with_key {
                false => {
                    "no key was given: set WARREN_API_KEY; a server keeps its owner's key in DIR/api-key".to_owned()
                }
                true => "the key is of another server, or revoked: check WARREN_API_KEY and --url".to_owned(),
            }),
            ApiError::Refused { code, .. } => {
                let known = ErrorCode::ALL.iter().find(|known| Some(known.as_str()) == code.as_deref());
                known.map(|known| known.remedy().to_owned())
            }
        }
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        match error.hint() {
            Some(hint) => Failure::new(error.to_string()).hint(hint),
            None => Failure::new(error.to_string()),
        }
    }
}

impl From<GatewayError> for Failure {
    fn from(error: GatewayError) -> Self {
        let hint = match &error {
            GatewayError::Api(api) => return api.clone().into(),
            GatewayError::Session(session) => match session.code {
                Code::NotFound => "see what became of it with `warren sandbox get ID`",
                Code::Unavailable | Code::Aborted => "the sandbox does not answer yet; try again",
                Code::ResourceExhausted => "too much is under way in this sandbox; try again",
                _ => return Failure::new(error.to_string()),
            },
            GatewayError::Cut { .. } => {
                "what was running in the sandbox goes on; `warren sandbox get ID` says if it lives"
            }
            GatewayError::BadAnswer { .. } | GatewayError::Local { .. } => return Failure::new(error.to_string()),
        };
        Failure::new(error.to_string()).hint(hint)
    }
}

fn text_of(detail: &Detail) -> String {
    match detail {
        Detail::Text(text) => text.clone(),
        Detail::Fields(fields) => {
            let lines = fields.iter().map(|field| {
                let steps = field.loc.iter().skip(1).map(|step| match step {
                    Location::Index(index) => index.to_string(),
                    Location::Name(name) => name.clone(),
                });
                format!("{}: {}", steps.collect::<Vec<_>>().join("."), field.msg)
            });
            lines.collect::<Vec<_>>().join("; ")
        }
    }
}

fn foreign_text(body: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(body).trim().chars().take(FOREIGN_TEXT_MAX).collect();
    if text.is_empty() { "the server gave no reason".to_owned() } else { text }
}

/// An error and its causes in one line.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// The innermost cause alone: what a person can act on.
fn root(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(status: u16, body: &str) -> Vec<String> {
        Failure::from(ApiError::refused(status, body.as_bytes())).lines()
    }

    #[test]
    fn refusals_of_the_server_bring_their_remedy() {
        let lines = lines(404, r#"{"detail":"no sandbox s1","code":"not_found"}"#);
        assert_eq!(lines[0], "error: no sandbox s1 (HTTP 404)");
        assert!(lines[1].starts_with("hint: Check the id"), "{lines:?}");
    }

    #[test]
    fn lists_of_fields_are_one_line() {
        let body = r#"{"detail":[{"loc":["body","labels",2],"msg":"too long","type":"value_error"}],"code":"x"}"#;
        assert_eq!(lines(422, body), ["error: labels.2: too long (HTTP 422)"]);
    }

    #[test]
    fn answers_of_strangers_are_shown_in_short() {
        assert_eq!(lines(502, "<html>bad gateway</html>"), ["error: <html>bad gateway</html> (HTTP 502)"]);
        assert_eq!(lines(500, ""), ["error: the server gave no reason (HTTP 500)"]);
        assert_eq!(lines(410, r#"{"error":"sandbox_terminated"}"#), ["error: sandbox_terminated (HTTP 410)"]);
        assert!(lines(500, &"x".repeat(10_000))[0].len() < 600);
    }
}
