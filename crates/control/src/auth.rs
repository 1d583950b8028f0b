//! Who calls, and what he may see.

use crate::api::ApiError;
use crate::context::Context;
use crate::store::{SandboxRow, StoreError, User};
use axum::extract::FromRequestParts;
use http::header::AUTHORIZATION;
use http::request::Parts;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::sync::Arc;
use warren_proto::http::{ErrorCode, KeyLimits};

/// Longest API key that is looked at, bytes.
const KEY_LEN_MAX: usize = 512;

/// The user whose key came with the request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) user: User,
    /// Hash and limits of the key, for quotas.
    pub(crate) key_hash: String,
    pub(crate) key_limits: KeyLimits,
}

/// What the store keeps of a key. A key has enough random bits that a plain hash gives nothing away.
pub(crate) fn hash_key(key: &str) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(key.as_bytes()) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Whose an object is: its team's, or a user's own. As in the column `scope` of the store.
pub(crate) fn scope_of(user_id: &str, team_id: Option<&str>) -> String {
    team_id.map_or_else(|| format!("user:{user_id}"), |team_id| format!("team:{team_id}"))
}

impl FromRequestParts<Arc<Context>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, cx: &Arc<Context>) -> Result<Self, ApiError> {
        let header = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let key = header.and_then(bearer).filter(|key| key.len() <= KEY_LEN_MAX);
        let refused = || ApiError::new(ErrorCode::Unauthorized, "API key missing, unknown or revoked");
        let found = cx.store.key_get(&hash_key(key.ok_or_else(refused)?)).await?;
        let key = found.ok_or_else(refused)?;
        Ok(Caller { user: key.user, key_hash: key.hash, key_limits: key.limits })
    }
}

pub(crate) fn bearer(header: &str) -> Option<&str> {
    let (scheme, key) = header.split_once(' ')?;
    let key = key.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !key.is_empty()).then_some(key)
}

impl Caller {
    /// Whether he may see and change the sandbox: it is his own, of a team of his, or he administers the server.
    pub(crate) async fn may_use(&self, cx: &Context, row: &SandboxRow) -> Result<bool, StoreError> {
        self.may_use_of(cx, &row.user_id, row.team_id.as_deref()).await
    }

    /// The same for anything that a user, or a team, has.
    pub(crate) async fn may_use_of(
        &self,
        cx: &Context,
        user_id: &str,
        team_id: Option<&str>,
    ) -> Result<bool, StoreError> {
        if self.user.is_admin || user_id == self.user.id {
            return Ok(true);
        }
        match team_id {
            Some(team_id) => Ok(cx.store.role(team_id, &self.user.id).await?.is_some()),
            None => Ok(false),
        }
    }

    /// Refuses if he may not act for the team.
    pub(crate) async fn in_team(&self, cx: &Context, team_id: &str) -> Result<(), ApiError> {
        let may = match self.user.is_admin {
            true => cx.store.team_exists(team_id).await?,
            false => cx.store.role(team_id, &self.user.id).await?.is_some(),
        };
        if may { Ok(()) } else { Err(ApiError::new(ErrorCode::Forbidden, "not a member of this team")) }
    }

    /// The scope that he means: a team's for which he may act, or his own.
    pub(crate) async fn scope(&self, cx: &Context, team_id: Option<&str>) -> Result<String, ApiError> {
        if let Some(team_id) = team_id {
            self.in_team(cx, team_id).await?;
        }
        Ok(scope_of(&self.user.id, team_id))
    }

    /// Whether a scope, as of [`scope_of`], is his own or that of a team of his.
    pub(crate) async fn is_in_scope(&self, cx: &Context, scope: &str) -> Result<bool, StoreError> {
        match scope.strip_prefix("team:") {
            Some(team_id) => Ok(cx.store.role(team_id, &self.user.id).await?.is_some()),
            None => Ok(scope == scope_of(&self.user.id, None)),
        }
    }

    /// Whether he administers the team, or the server if there is no team.
    pub(crate) async fn administers(&self, cx: &Context, team_id: Option<&str>) -> Result<bool, StoreError> {
        match team_id {
            _ if self.user.is_admin => Ok(true),
            Some(team_id) => Ok(cx.store.role(team_id, &self.user.id).await?.as_deref() == Some("admin")),
            None => Ok(false),
        }
    }

    /// Refuses if he does not administer the server.
    pub(crate) fn admin(&self) -> Result<(), ApiError> {
        let refused = || ApiError::new(ErrorCode::Forbidden, "only an administrator of this server may do this");
        self.user.is_admin.then_some(()).ok_or_else(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearer_keys() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer("bearer  abc "), Some("abc"));
        for bad in ["", "Bearer", "Bearer ", "Basic abc", "abc"] {
            assert_eq!(bearer(bad), None, "{bad:?}");
        }
    }
}
