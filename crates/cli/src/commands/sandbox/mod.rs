//! `warren sandbox ...`.

mod ask;
mod checkpoint;
mod create;
mod delete;
mod download;
mod fork;
mod get;
mod list;
mod logs;
mod outcome;
mod output;
mod run;
mod shell;
mod stdin;
mod terminal;
mod turn;
mod upload;
mod view;
mod wait;

pub(crate) use checkpoint::until_settled;
pub(super) use fork::fork;

use super::{Context, snapshot};
use crate::args::SandboxCommand;
use crate::failure::{Exit, Failure};

/// Runs one of the commands.
pub(crate) async fn dispatch(context: &Context, command: SandboxCommand) -> Result<Exit, Failure> {
    match command {
        SandboxCommand::Create(args) => create::run(context, *args).await,
        SandboxCommand::List(args) => list::run(context, args).await,
        SandboxCommand::Get(args) => get::run(context, &args.id).await,
        SandboxCommand::Run(args) => run::run(context, args).await,
        SandboxCommand::Shell(args) => shell::run(context, args).await,
        SandboxCommand::Upload(args) => upload::run(context, args).await,
        SandboxCommand::Download(args) => download::run(context, args).await,
        SandboxCommand::Logs(args) => logs::run(context, &args.id).await,
        SandboxCommand::Checkpoint(command) => checkpoint::dispatch(context, command).await,
        SandboxCommand::Fork(args) => fork::run(context, args).await,
        SandboxCommand::Snapshot(args) => snapshot::take(context, args).await,
        SandboxCommand::Reset(args) => turn::reset(context, args).await,
        SandboxCommand::Pause(args) => turn::pause(context, &args.id).await,
        SandboxCommand::Resume(args) => turn::resume(context, &args.id).await,
        SandboxCommand::Delete(args) => delete::run(context, args).await,
    }
}

/// The exit code of a failure that is not the command's own.
fn not_the_command(failure: Failure) -> Failure {
    failure.exit(Exit::NotTheCommand)
}
