use super::view::LoginsView;
use super::{password, team};
use crate::args::AddArgs;
use crate::commands::Context;
use crate::failure::{Exit, Failure};
use warren_proto::http::NewRegistryCredential;

/// Saves a login.
pub(super) async fn run(context: &Context, args: AddArgs) -> Result<Exit, Failure> {
    let password = password::read(args.password_stdin, &format!("Password of {} at {}: ", args.user, args.host))?;
    let team_id = team(context, &args.owner);
    let host = args.host;
    let login = NewRegistryCredential { server: host.clone(), username: args.user, password, team_id };
    let saved = context.api.save_login(&login).await.map_err(|error| Failure::from(error).about(&host))?;
    context.printer.show(&LoginsView { logins: vec![saved] })?;
    Ok(Exit::Success)
}
