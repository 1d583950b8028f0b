use super::ApiError;
use crate::auth::Caller;
use crate::context::Context;
use axum::Json;
use axum::extract::{Path, RawQuery, State};
use std::collections::BTreeMap;
use std::sync::Arc;
use warren_proto::http::{
    AccountLimits, ErrorBody, Member, Members, Permission, Team, Teams, Timestamp, Wallet, Whoami, WhoamiAnswer,
};

/// Teams on one page, if the client does not say.
const TEAMS_DEFAULT: usize = 100;

/// Who the caller is.
#[utoipa::path(
    get, path = "/user/whoami", operation_id = "whoami", tag = "account",
    params(("teamId" = Option<String>, Query)),
    responses((status = 200, body = WhoamiAnswer), (status = "default", body = ErrorBody))
)]
pub(super) async fn whoami(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<WhoamiAnswer>, ApiError> {
    if let Some(team_id) = value(query.as_deref(), "teamId") {
        caller.in_team(&cx, &team_id).await?;
    }
    let all = Permission { read: true, write: true };
    let account_limits =
        AccountLimits { vm_sandbox_limit: cx.config.sandboxes_per_user_max, ..AccountLimits::default() };
    let data = Whoami {
        id: caller.user.id,
        name: Some(caller.user.name),
        email: Some(caller.user.email),
        slug: Some(caller.user.slug),
        scope: Some(BTreeMap::from([("sandboxes".to_owned(), all), ("images".to_owned(), all)])),
        account_limits: Some(account_limits),
        key_limits: Some(caller.key_limits),
    };
    Ok(Json(WhoamiAnswer { data }))
}

/// The caller's teams.
#[utoipa::path(
    get, path = "/user/teams", operation_id = "teams", tag = "account",
    params(("offset" = Option<u64>, Query), ("limit" = Option<u64>, Query)),
    responses((status = 200, body = Teams), (status = "default", body = ErrorBody))
)]
pub(super) async fn teams(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Teams>, ApiError> {
    let number = |key, default| value(query.as_deref(), key).and_then(|text| text.parse().ok()).unwrap_or(default);
    let all = cx.store.teams_of(&caller.user.id).await?;
    let total_count = all.len() as u64;
    let page = all.into_iter().skip(number("offset", 0)).take(number("limit", TEAMS_DEFAULT));
    let data = page
        .map(|team| Team {
            team_id: team.team_id,
            name: team.name,
            slug: team.slug,
            role: team.role,
            created_at: Timestamp::from_ms(team.created_at_ms),
        })
        .collect();
    Ok(Json(Teams { data, total_count }))
}

/// The members of a team of the caller.
#[utoipa::path(
    get, path = "/teams/{id}/members", operation_id = "members", tag = "account", params(("id" = String, Path)),
    responses((status = 200, body = Members), (status = "default", body = ErrorBody))
)]
pub(super) async fn members(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Members>, ApiError> {
    caller.in_team(&cx, &id).await?;
    let rows = cx.store.members(&id).await?;
    let data = rows
        .into_iter()
        .map(|row| Member {
            user_id: row.user.id,
            user_name: row.user.name,
            user_email: row.user.email,
            role: row.role,
            joined_at: Timestamp::from_ms(row.joined_at_ms),
        })
        .collect();
    Ok(Json(Members { data }))
}

/// The wallet: empty, since nothing costs anything.
#[utoipa::path(
    get, path = "/billing/wallet", operation_id = "wallet", tag = "account",
    params(("teamId" = Option<String>, Query)),
    responses((status = 200, body = Wallet), (status = "default", body = ErrorBody))
)]
pub(super) async fn wallet(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Wallet>, ApiError> {
    let team_id = value(query.as_deref(), "teamId");
    if let Some(team_id) = &team_id {
        caller.in_team(&cx, team_id).await?;
    }
    Ok(Json(Wallet {
        wallet_id: format!("wallet-{}", team_id.as_deref().unwrap_or(&caller.user.id)),
        team_id,
        balance_usd: 0.0,
        currency: "USD".to_owned(),
        total_billings: 0,
        recent_billings: Vec::new(),
    }))
}

/// The first value of a query parameter; an empty one counts as absent.
pub(super) fn value(query: Option<&str>, key: &str) -> Option<String> {
    let mut pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    pairs.find(|(name, value)| name == key && !value.is_empty()).map(|(_, value)| value.into_owned())
}
