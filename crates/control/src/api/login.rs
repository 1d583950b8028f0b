//! Login of a client that has no key: it shows a code, a user approves the code with his own key, and the client fetches a key of
//! its own that only it can decrypt.

use super::ApiError;
use super::account::value;
use super::parsed::Parsed;
use crate::auth::{Caller, bearer, hash_key};
use crate::clock::now_ms;
use crate::context::Context;
use crate::random;
use crate::store::ChallengeRow;
use axum::Json;
use axum::extract::{RawQuery, State};
use axum::response::{Html, IntoResponse};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use http::header::{AUTHORIZATION, CONTENT_SECURITY_POLICY};
use rsa::PublicKey;
use rsa::pkcs8::DecodePublicKey;
use rsa::sha2::Sha256;
use std::sync::Arc;
use warren_proto::http::{
    ApproveChallenge, Challenge, ChallengeStatus, ErrorBody, ErrorCode, FieldError, NewChallenge,
};

/// Longest public key, bytes of PEM: enough for RSA of 8192 bits.
const PUBLIC_KEY_LEN_MAX: usize = 4096;

/// Begins a login. Needs no key.
#[utoipa::path(
    post, path = "/auth_challenge/generate", operation_id = "login_begin", tag = "login", security(()),
    request_body = NewChallenge,
    responses((status = 200, body = Challenge), (status = "default", body = ErrorBody))
)]
pub(super) async fn generate(
    State(cx): State<Arc<Context>>,
    Parsed(request): Parsed<NewChallenge>,
) -> Result<Json<Challenge>, ApiError> {
    public_key(&request.encryption_public_key)
        .ok_or_else(|| FieldError::body("encryptionPublicKey", "expected an RSA public key in PEM"))?;
    let status_auth_token = random::api_key()?;
    let row = ChallengeRow {
        code: random::code()?,
        status_token_hash: hash_key(&status_auth_token),
        public_key: request.encryption_public_key,
        limits: request.limits,
        result: None,
        created_at_ms: now_ms(),
    };
    if !cx.store.challenge_insert(&row).await? {
        return Err(ApiError::new(
            ErrorCode::LimitReached,
            "too many logins wait for approval; try again in ten minutes",
        ));
    }
    Ok(Json(Challenge { challenge: row.code, status_auth_token }))
}

/// Where a login stands; for the client that began it.
#[utoipa::path(
    get, path = "/auth_challenge/status", operation_id = "login_status", tag = "login",
    params(("challenge" = String, Query)),
    responses((status = 200, body = ChallengeStatus), (status = "default", body = ErrorBody))
)]
pub(super) async fn status(
    State(cx): State<Arc<Context>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<ChallengeStatus>, ApiError> {
    let row = find(&cx, &value(query.as_deref(), "challenge").unwrap_or_default()).await?;
    let token = headers.get(AUTHORIZATION).and_then(|header| bearer(header.to_str().ok()?));
    if token.map(hash_key).as_ref() != Some(&row.status_token_hash) {
        return Err(ApiError::new(ErrorCode::Unauthorized, "this is not the client that began the login"));
    }
    let status = if row.result.is_some() { "approved" } else { "pending" };
    Ok(Json(ChallengeStatus { status: status.to_owned(), result: row.result }))
}

/// Approves a login: its client gets a new key of the caller.
#[utoipa::path(
    post, path = "/auth_challenge/approve", operation_id = "login_approve", tag = "login",
    request_body = ApproveChallenge,
    responses((status = 200, body = ChallengeStatus), (status = "default", body = ErrorBody))
)]
pub(super) async fn approve(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Parsed(request): Parsed<ApproveChallenge>,
) -> Result<Json<ChallengeStatus>, ApiError> {
    let row = find(&cx, request.challenge.trim()).await?;
    let key = random::api_key()?;
    let encrypted = public_key(&row.public_key).and_then(|public| public.oaep_encrypt::<Sha256>(key.as_bytes()).ok());
    let encrypted = encrypted
        .ok_or_else(|| ApiError::new(ErrorCode::Conflict, "the client's public key is too short for an API key"))?;
    let result = STANDARD.encode(encrypted);
    if !cx.store.challenge_approve(&row, &caller.user.id, &hash_key(&key), &result, now_ms()).await? {
        return Err(ApiError::new(ErrorCode::Conflict, "this login was approved before"));
    }
    Ok(Json(ChallengeStatus { status: "approved".to_owned(), result: None }))
}

/// The page to which a client sends its user.
pub(super) async fn page() -> impl IntoResponse {
    let policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
                  form-action 'none'; base-uri 'none'; frame-ancestors 'none'";
    ([(CONTENT_SECURITY_POLICY, policy)], Html(include_str!("login.html")))
}

async fn find(cx: &Context, code: &str) -> Result<ChallengeRow, ApiError> {
    let found = cx.store.challenge_get(code, now_ms()).await?;
    found.ok_or_else(|| ApiError::new(ErrorCode::NotFound, "no such login, or it is over"))
}

fn public_key(pem: &str) -> Option<PublicKey> {
    (pem.len() <= PUBLIC_KEY_LEN_MAX).then(|| PublicKey::from_public_key_pem(pem).ok())?
}
