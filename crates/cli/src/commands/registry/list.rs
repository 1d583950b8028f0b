use super::team;
use super::view::LoginsView;
use crate::args::OwnerArgs;
use crate::commands::Context;
use crate::failure::{Exit, Failure};

/// Shows the saved logins.
pub(super) async fn run(context: &Context, args: &OwnerArgs) -> Result<Exit, Failure> {
    let logins = context.api.logins(team(context, args).as_deref()).await?.credentials;
    context.printer.show(&LoginsView { logins })?;
    Ok(Exit::Success)
}
