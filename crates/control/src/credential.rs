//! Which saved login an image is fetched with.

use crate::auth::scope_of;
use crate::context::Context;
use crate::store::{CredentialRow, StoreError};
use warren_model::reference::Reference;
use warren_model::{ImageAccess, Login};

/// The access to an image that a user has, for a team if one is named: with the team's saved login for the registry, else with his
/// own, else with none.
pub(crate) async fn image_access(
    cx: &Context,
    user_id: &str,
    team_id: Option<&str>,
    reference: &str,
) -> Result<ImageAccess, StoreError> {
    let of_team = team_id.map(|team_id| scope_of(user_id, Some(team_id)));
    let own = scope_of(user_id, None);
    // What is not a reference is told by whoever uses it.
    let parsed = Reference::parse(reference).ok();
    if let Some(server) = parsed.as_ref().and_then(Reference::registry) {
        for owner in of_team.iter().chain([&own]) {
            if let Some(row) = cx.store.credential_get(owner, server).await? {
                return Ok(opened(cx, row));
            }
        }
    }
    Ok(ImageAccess { owner: of_team.unwrap_or(own), login: None })
}

/// The access that a saved login gives. One that cannot be opened gives what having none does.
pub(crate) fn opened(cx: &Context, row: CredentialRow) -> ImageAccess {
    let password = cx.sealer.unseal(&row.id, &row.sealed).ok().and_then(|plain| String::from_utf8(plain).ok());
    if password.is_none() {
        tracing::error!(
            credential = row.id,
            server = row.server,
            "a saved login cannot be opened; going on without it"
        );
    }
    ImageAccess { owner: row.scope, login: password.map(|password| Login { user: row.username, password }) }
}
