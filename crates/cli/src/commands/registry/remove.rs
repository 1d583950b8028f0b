use super::team;
use crate::args::ForgetArgs;
use crate::commands::Context;
use crate::commands::removed::RemovedView;
use crate::failure::{Exit, Failure};
use crate::printer::say;

/// Removes saved logins; fails if one of them could not be removed, after having tried them all.
pub(super) async fn run(context: &Context, args: ForgetArgs) -> Result<Exit, Failure> {
    let team = team(context, &args.owner);
    let mut removed = RemovedView::default();
    let mut exit = Exit::Success;
    for host in args.hosts {
        match context.api.remove_login(&host, team.as_deref()).await {
            Ok(()) => removed.add(host, ""),
            Err(error) => {
                Failure::from(error).about(&host).lines().iter().for_each(|line| say(line));
                exit = Exit::Failure;
            }
        }
    }
    context.printer.show(&removed)?;
    Ok(exit)
}
