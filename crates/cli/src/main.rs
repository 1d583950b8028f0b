//! The one binary: client commands and serve, shim; wiring and printing only.
#![deny(unsafe_code)]

mod args;
mod client;
mod commands;
mod env_vars;
mod failure;
mod places;
mod printer;
mod settings;

use args::{Cli, Command, GlobalArgs};
use clap::Parser as _;
use client::Api;
use commands::Context;
use failure::{Exit, Failure};
use printer::Printer;
use settings::Settings;
use std::process::ExitCode;

fn main() -> ExitCode {
    match dispatch(Cli::parse()) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            if failure.exit_code() != Exit::Success {
                failure.lines().iter().for_each(|line| printer::say(line));
            }
            failure.exit_code().into()
        }
    }
}

/// The roles that run for long come first and have runtimes of their own making; the rest are clients.
fn dispatch(cli: Cli) -> Result<Exit, Failure> {
    let printer = Printer::new(cli.global.output, cli.global.quiet);
    match cli.command {
        Command::Shim(args) => commands::shim::run(args),
        Command::Serve(args) => commands::serve::run(args),
        Command::Doctor(args) => commands::doctor::run(args.data_dir, &printer),
        Command::Completions(args) => commands::completions::run(args.shell),
        Command::Sandbox(command) => {
            let context = context(&cli.global)?;
            block_on(commands::sandbox::dispatch(&context, command))
        }
        Command::Snapshot(command) => {
            let context = context(&cli.global)?;
            block_on(commands::snapshot::dispatch(&context, command))
        }
        Command::Template(command) => {
            let context = context(&cli.global)?;
            block_on(commands::template::dispatch(&context, command))
        }
        Command::Registry(command) => {
            let context = context(&cli.global)?;
            block_on(commands::registry::dispatch(&context, command))
        }
        Command::Volumes(command) => {
            let context = context(&cli.global)?;
            block_on(commands::volumes::dispatch(&context, command))
        }
        Command::Images(command) => {
            let context = context(&cli.global)?;
            block_on(commands::images::dispatch(&context, command))
        }
    }
}

fn context(global: &GlobalArgs) -> Result<Context, Failure> {
    let settings = Settings::load(global)?;
    let printer = Printer::new(settings.output, settings.quiet);
    Ok(Context { api: Api::new(&settings)?, printer, team_id: settings.team_id })
}

/// One thread is enough for one command.
fn block_on(work: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("cannot start: {error}")))?;
    let done = runtime.block_on(work);
    // A read of a terminal may be under way on a thread of the runtime; nobody needs its result.
    runtime.shutdown_background();
    done
}
