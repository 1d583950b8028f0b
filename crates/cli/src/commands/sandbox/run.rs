use super::output::Sink;
use super::stdin;
use super::{not_the_command, outcome};
use crate::args::RunArgs;
use crate::client::{Gateway, GatewayError, Session};
use crate::commands::Context;
use crate::failure::{Exit, Failure};
use crate::printer::say;
use futures_util::future::{BoxFuture, FutureExt as _, pending};
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use warren_proto::guest::command_session::{
    Code, CommandSpec, EndEvent, Event, Input, Output, Selector, Signal, StartRequest,
};

/// Runs a command and passes on its output, its input and its exit code.
pub(super) async fn run(context: &Context, args: RunArgs) -> Result<Exit, Failure> {
    let argv = words(&args.command)?;
    let limit = args.timeout.map(Duration::from_secs);
    let id = args.id.clone();
    let gateway = context.api.gateway(&id).await.map_err(|error| not_the_command(Failure::from(error).about(&id)))?;
    let began = Instant::now();
    let mut sink = if context.printer.is_json() { Sink::capture() } else { Sink::Pass };
    let passed = match gateway.start(&request(&args, argv), limit).await {
        Ok(session) => follow(&gateway, session, args.stdin, &mut sink).await,
        Err(error) => Err(Stop::Gateway(error)),
    };
    match passed {
        Ok(end) => {
            if let Some(document) = sink.document(end.exit_code, began.elapsed()) {
                context.printer.text(&(document.to_string() + "\n"))?;
            }
            explain_end(&end);
            Ok(exit_of(&end))
        }
        Err(Stop::Output(error)) => Err(error.into()),
        Err(Stop::Gateway(GatewayError::Session(error))) if limit.is_some() && error.code == Code::DeadlineExceeded => {
            let seconds = args.timeout.unwrap_or_default();
            Err(Failure::new(format!("the command was killed after {seconds} s")).about(&id).exit(Exit::TimedOut))
        }
        Err(Stop::Gateway(error)) => {
            let exit = exit_of_refusal(&error);
            Err(outcome::explain(context, &id, error).await.exit(exit))
        }
    }
}

/// Why a command is followed no longer, before its end.
enum Stop {
    Gateway(GatewayError),
    Output(std::io::Error),
}

/// One argument with blanks is split as a shell would, as `prime sandbox run` does.
fn words(command: &[String]) -> Result<Vec<String>, Failure> {
    let [single] = command else { return Ok(command.to_vec()) };
    let split = shlex::split(single).filter(|words| !words.is_empty());
    split.ok_or_else(|| {
        not_the_command(Failure::new(format!("`{single}` is not a command: a quote is not closed, or it is empty")))
    })
}

fn request(args: &RunArgs, argv: Vec<String>) -> StartRequest {
    let mut argv = argv.into_iter();
    let command = CommandSpec {
        cmd: argv.next().unwrap_or_default(),
        args: argv.collect(),
        envs: args.env.iter().map(|pair| (pair.key.clone(), pair.value.clone())).collect(),
        cwd: args.working_dir.clone(),
        user: args.user.clone(),
    };
    StartRequest { command: Some(command), pty: None, stdin: Some(args.stdin), session_uuid: None }
}

async fn follow(gateway: &Gateway, mut session: Session, with_stdin: bool, sink: &mut Sink) -> Result<EndEvent, Stop> {
    let mut asked_to_stop = Interrupts::listen().map_err(Stop::Output)?;
    let mut input: BoxFuture<'_, Result<(), GatewayError>> = pending().boxed();
    let mut pid = None;
    loop {
        tokio::select! {
            event = session.next() => match event.map_err(Stop::Gateway)? {
                Some(Event::Start(start)) => {
                    if with_stdin && pid.is_none() {
                        let (sender, call) = gateway.input(Selector::Pid(start.pid));
                        stdin::pass_on(sender, Input::Stdin);
                        input = call.boxed();
                    }
                    pid = Some(start.pid);
                }
                Some(Event::Data(data)) => pass(sink, data.output).map_err(Stop::Output)?,
                Some(Event::End(end)) => return Ok(end),
                Some(Event::Keepalive(_)) => {}
                None => return Err(Stop::Gateway(GatewayError::Cut { problem: "it ended without an exit code".into() })),
            },
            sent = &mut input => {
                input = pending().boxed();
                tell_of_input(sent);
            }
            signal = asked_to_stop.next() => match pid {
                // The command decides what a request to end means; the exit code is then its own.
                Some(pid) => gateway.signal(Selector::Pid(pid), signal).await.map_err(Stop::Gateway)?,
                None => return Err(Stop::Gateway(GatewayError::Cut { problem: "interrupted".into() })),
            },
        }
    }
}

fn pass(sink: &mut Sink, output: Option<Output>) -> std::io::Result<()> {
    output.map_or(Ok(()), |output| sink.take(output))
}

/// A command that ended needs no input; anything else is worth a word, though the command goes on.
fn tell_of_input(sent: Result<(), GatewayError>) {
    match sent {
        Ok(()) => {}
        Err(GatewayError::Session(error)) if matches!(error.code, Code::NotFound | Code::FailedPrecondition) => {}
        Err(error) => say(&format!("warning: stdin does not reach the command any more: {error}")),
    }
}

fn explain_end(end: &EndEvent) {
    if let Some(error) = end.error.as_deref().filter(|error| !error.is_empty()) {
        say(&format!("warning: the command ended by a fault: {}", crate::printer::visible(error)));
    }
}

fn exit_of(end: &EndEvent) -> Exit {
    // Codes outside of one byte do not come from a process; 255 is what shells make of them.
    Exit::Command(u8::try_from(end.exit_code).unwrap_or(u8::MAX))
}

/// A program that could not be executed exits as a shell would have it: 127 if it is not there, 126 if it is and may not
/// be executed. The words are the agent's, and `tests/conformance` holds both to them.
fn exit_of_refusal(error: &GatewayError) -> Exit {
    match error {
        GatewayError::Session(refused) if refused.message.starts_with("cannot execute ") => {
            Exit::Command(if refused.message.ends_with("(os error 2)") { 127 } else { 126 })
        }
        _ => Exit::NotTheCommand,
    }
}

/// Ctrl-C and requests to end, turned into what the sandbox knows: first SIGTERM, from the second on SIGKILL.
struct Interrupts {
    interrupt: Signals,
    terminate: Signals,
    seen: u32,
}

impl Interrupts {
    fn listen() -> std::io::Result<Self> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { interrupt, terminate, seen: 0 })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        self.seen += 1;
        if self.seen == 1 { Signal::Sigterm } else { Signal::Sigkill }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warren_proto::guest::command_session::ConnectError;

    fn of(command: &[&str]) -> Option<Vec<String>> {
        words(&command.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).ok()
    }

    #[test]
    fn one_argument_is_split_and_several_are_not() {
        assert_eq!(of(&["ls -l '/a b'"]), Some(vec!["ls".into(), "-l".into(), "/a b".into()]));
        assert_eq!(of(&["bash", "-c", "echo $X"]), Some(vec!["bash".into(), "-c".into(), "echo $X".into()]));
        assert_eq!(of(&["ls '"]), None);
        assert_eq!(of(&[""]), None);
    }

    #[test]
    fn a_program_that_is_not_there_exits_as_in_a_shell() {
        let of = |message: &str| {
            let refused = ConnectError::new(Code::InvalidArgument, message);
            exit_of_refusal(&GatewayError::Session(refused)).code()
        };
        assert_eq!(of("cannot execute \"x\": No such file or directory (os error 2)"), 127);
        assert_eq!(of("cannot execute \"x\": Permission denied (os error 13)"), 126);
        assert_eq!(of("cannot enter the working directory"), 125);
    }

    #[test]
    fn the_exit_code_is_the_commands() {
        for (code, exit) in [(0, 0), (3, 3), (137, 137), (255, 255), (256, 255), (-1, 255)] {
            assert_eq!(exit_of(&EndEvent { exit_code: code, ..EndEvent::default() }).code(), exit);
        }
    }
}
