use super::output::Sink;
use super::terminal::{self, RawMode};
use super::{not_the_command, outcome, stdin};
use crate::args::ShellArgs;
use crate::client::{Gateway, GatewayError, Session};
use crate::commands::Context;
use crate::failure::{Exit, Failure};
use futures_util::future::{BoxFuture, FutureExt as _, pending};
use std::io::IsTerminal as _;
use tokio::signal::unix::{SignalKind, signal};
use warren_proto::guest::command_session::{CommandSpec, Event, Input, Pty, Selector, StartRequest};

/// What runs if nothing is asked for; where an image has none, the sandbox brings its own.
const SHELL_DEFAULT: &str = "/bin/bash";

/// Opens a terminal in the sandbox.
pub(super) async fn run(context: &Context, args: ShellArgs) -> Result<Exit, Failure> {
    if !std::io::stdin().is_terminal() {
        let hint = "without one, use `warren sandbox run --stdin ID -- COMMAND`";
        return Err(not_the_command(Failure::new("stdin is not a terminal").hint(hint)));
    }
    let id = args.id.clone();
    let gateway = context.api.gateway(&id).await.map_err(|error| not_the_command(Failure::from(error).about(&id)))?;
    let ended = match gateway.start(&request(args), None).await {
        Ok(session) => {
            let raw = RawMode::enter()?;
            let ended = follow(&gateway, session).await;
            drop(raw);
            ended
        }
        Err(error) => Err(error),
    };
    match ended {
        Ok(exit) => Ok(exit),
        Err(error) => Err(not_the_command(outcome::explain(context, &id, error).await)),
    }
}

fn request(args: ShellArgs) -> StartRequest {
    let mut argv = args.command.into_iter();
    let mut envs: std::collections::BTreeMap<_, _> = args.env.into_iter().map(|pair| (pair.key, pair.value)).collect();
    if let Some(term) = crate::places::process_env("TERM") {
        envs.entry("TERM".to_owned()).or_insert(term);
    }
    let command = CommandSpec {
        cmd: argv.next().unwrap_or_else(|| SHELL_DEFAULT.to_owned()),
        args: argv.collect(),
        envs,
        cwd: args.working_dir,
        user: args.user,
    };
    StartRequest {
        command: Some(command),
        pty: Some(Pty { size: Some(terminal::size()) }),
        stdin: Some(true),
        session_uuid: Some(uuid::Uuid::new_v4().to_string()),
    }
}

async fn follow(gateway: &Gateway, mut session: Session) -> Result<Exit, GatewayError> {
    let here = |error: std::io::Error| GatewayError::Local {
        action: "use",
        path: "the terminal".to_owned(),
        problem: error.to_string(),
    };
    let mut resized = signal(SignalKind::window_change()).map_err(here)?;
    let mut asked_to_stop = signal(SignalKind::terminate()).map_err(here)?;
    let mut input: BoxFuture<'_, Result<(), GatewayError>> = pending().boxed();
    let mut pid = None;
    loop {
        tokio::select! {
            event = session.next() => match event? {
                Some(Event::Start(start)) => {
                    if pid.replace(start.pid).is_none() {
                        let (sender, call) = gateway.input(Selector::Pid(start.pid));
                        stdin::pass_on(sender, Input::Pty);
                        input = call.boxed();
                    }
                }
                Some(Event::Data(data)) => {
                    if let Some(output) = data.output {
                        Sink::Pass.take(output).map_err(here)?;
                    }
                }
                Some(Event::End(end)) => return Ok(Exit::Command(u8::try_from(end.exit_code).unwrap_or(u8::MAX))),
                Some(Event::Keepalive(_)) => {}
                None => return Err(GatewayError::Cut { problem: "it ended without an exit code".into() }),
            },
            sent = &mut input => {
                input = pending().boxed();
                // Keys that cannot be sent make the terminal useless; a shell that ended says so by its own event.
                if let Err(error @ GatewayError::Cut { .. }) = sent {
                    return Err(error);
                }
            }
            _ = resized.recv() => {
                if let Some(pid) = pid {
                    // A size that did not arrive is mended by the next one.
                    let _ = gateway.resize(Selector::Pid(pid), terminal::size()).await;
                }
            }
            _ = asked_to_stop.recv() => return Err(GatewayError::Cut { problem: "this command was asked to end".into() }),
        }
    }
}
