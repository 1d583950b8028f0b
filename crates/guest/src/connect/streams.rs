use super::receive::Messages;
use super::{find, of_input_error, of_start_error, parse_uuid};
use crate::agent::Agent;
use crate::command::{Command, Defaults, Wiring, launch};
use crate::http::Incoming;
use crate::init;
use crate::session::{self, Session, Uuid};
use crate::sys::World;
use bytes::Bytes;
use http::HeaderMap;
use prost::Message;
use rustix::process::{Pid, Signal, kill_process_group};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;
use warren_proto::guest::command_session::{
    Code, CommandInput, CommandSessionInfo, CommandSpec, ConnectError, ConnectRequest, END_STREAM, Empty, Input,
    PtySize, StartRequest, StreamInputEvent, StreamInputRequest, envelope,
};

/// A session for a stream to show, and when that stream's time is up.
type Found = Result<(Rc<Session>, Option<Instant>), ConnectError>;

/// Size of a terminal whose client names none.
const TERMINAL_SIZE_DEFAULT: PtySize = PtySize { cols: 80, rows: 24 };
/// Longest text kept of each argument of a running command, for lists, bytes.
const INFO_TEXT_LEN_MAX: usize = 512;
/// Arguments and variables kept of a running command, for lists.
const INFO_ITEMS_MAX: usize = 16;
/// How long a stream may outlive the moment at which its command was due to be killed: a reader so slow that the last output
/// has not gone by then does not get it.
const AFTER_KILL: Duration = Duration::from_millis(150);

/// Starts a command, or finds the session that an earlier request of the same UUID has started.
pub(super) async fn start(agent: &Rc<Agent>, headers: &HeaderMap, body: Incoming, deadline: Option<Instant>) -> Found {
    let request: StartRequest = Messages::new(headers, body)?.only().await?;
    let uuid = request.session_uuid.as_deref().map(|text| parse_uuid("session_uuid", text)).transpose()?;
    let fingerprint = fingerprint(&request);
    if let Some(known) = uuid.and_then(|uuid| agent.sessions.by_uuid(uuid)) {
        if known.fingerprint != fingerprint {
            let message = "this session_uuid belongs to a session of another command";
            return Err(ConnectError::new(Code::FailedPrecondition, message));
        }
        return Ok((known, deadline));
    }
    if agent.sessions.is_full() {
        return Err(ConnectError::new(Code::ResourceExhausted, "too many commands run"));
    }
    let defaults = init::defaults(agent)
        .ok_or_else(|| ConnectError::new(Code::Unavailable, "the guest is not initialised yet"))?;
    let session = launch_session(agent, &defaults, request, uuid, fingerprint, deadline)?;
    agent.cgroups.prepare();
    // A session with a UUID can be attached to: only this stream ends at the deadline, not the command.
    let stream_deadline = if uuid.is_some() { deadline } else { deadline.map(|at| at + AFTER_KILL) };
    Ok((session, stream_deadline))
}

fn launch_session(
    agent: &Rc<Agent>,
    defaults: &Defaults,
    request: StartRequest,
    uuid: Option<Uuid>,
    fingerprint: u64,
    deadline: Option<Instant>,
) -> Result<Rc<Session>, ConnectError> {
    let spec = request.command.unwrap_or_default();
    if spec.cmd.is_empty() {
        return Err(ConnectError::new(Code::InvalidArgument, "command.cmd: empty"));
    }
    let wiring = match request.pty {
        Some(pty) => Wiring::Terminal(pty.size.unwrap_or(TERMINAL_SIZE_DEFAULT)),
        None => Wiring::Pipes { stdin: request.stdin.unwrap_or(false) },
    };
    let command = Command {
        program: &spec.cmd,
        args: &spec.args,
        env: &spec.envs,
        cwd: spec.cwd.as_deref().filter(|cwd| !cwd.is_empty()),
        user: spec.user.as_deref().filter(|user| !user.is_empty()),
        wiring,
    };
    let first = agent.start_command.first_process();
    let world = first.as_deref().map_or(World::Agent, World::Of);
    let start = |world| launch(&command, defaults, world, &agent.cgroups, &agent.reaper);
    let launched = match start(world) {
        // The init has just ended, and nobody has noticed yet: commands live with us until there is another.
        Err(error) if first.is_some() && error.is_of_a_gone_process() => start(World::Agent),
        launched => launched,
    };
    let launched = launched.map_err(|error| of_start_error(&error))?;
    let info =
        CommandSessionInfo { pid: launched.pid, session_uuid: request.session_uuid, command: Some(shorten(spec)) };
    let kill_at = deadline.filter(|_| uuid.is_none());
    let pid = launched.pid;
    session::start(agent, launched, info, uuid, fingerprint, kill_at).map_err(|error| {
        if let Some(group) = Pid::from_raw(pid as i32) {
            // It has just been started, so the number is its own; one that has ended already is fine.
            let _ = kill_process_group(group, Signal::KILL);
        }
        ConnectError::new(Code::ResourceExhausted, format!("cannot watch the command: {error}"))
    })
}

/// Finds the session to attach to.
pub(super) async fn connect(
    agent: &Rc<Agent>,
    headers: &HeaderMap,
    body: Incoming,
    deadline: Option<Instant>,
) -> Found {
    let request: ConnectRequest = Messages::new(headers, body)?.only().await?;
    Ok((find(agent, request.session)?, deadline))
}

/// Writes a stream of input to a session, each part before the next is read.
pub(super) async fn stream_input(agent: &Agent, headers: &HeaderMap, body: Incoming) -> Result<Bytes, ConnectError> {
    let too_many = |_| ConnectError::new(Code::ResourceExhausted, "too many streams of input");
    let _turn = agent.input_streams.try_acquire().map_err(too_many)?;
    let mut messages = Messages::new(headers, body)?;
    let mut session = None;
    while let Some(message) = messages.next::<StreamInputRequest>().await? {
        match message.event {
            Some(StreamInputEvent::Start(start)) => session = Some(find(agent, start.session)?),
            Some(StreamInputEvent::Data(data)) => {
                let session = session.as_ref();
                let session =
                    session.ok_or_else(|| ConnectError::new(Code::InvalidArgument, "input before a start"))?;
                write_input(session, data.input, None).await?;
            }
            Some(StreamInputEvent::Keepalive(_)) | None => {}
        }
    }
    let answer = envelope(0, &Empty {}.encode_to_vec());
    Ok([&answer[..], &envelope(END_STREAM, b"{}")].concat().into())
}

/// Writes input to a session's pipe or terminal.
pub(super) async fn write_input(
    session: &Session,
    input: Option<CommandInput>,
    uuid: Option<Uuid>,
) -> Result<(), ConnectError> {
    let refuse = |text: &str| Err(ConnectError::new(Code::FailedPrecondition, text));
    let Some(queue) = session.input() else { return refuse("the command was started without input") };
    let data = match (input.and_then(|input| input.input), queue.is_terminal()) {
        (Some(Input::Stdin(data)), false) | (Some(Input::Pty(data)), true) => data,
        (Some(Input::Stdin(_)), true) => return refuse("the command runs on a terminal: send pty input"),
        (Some(Input::Pty(_)), false) => return refuse("the command does not run on a terminal: send stdin input"),
        (None, _) => return Err(ConnectError::new(Code::InvalidArgument, "input: empty")),
    };
    queue.write(data, uuid).await.map_err(of_input_error)
}

/// Equal for requests that ask for the same. Within one life of the agent only.
fn fingerprint(request: &StartRequest) -> u64 {
    let mut hasher = DefaultHasher::new();
    request.hash(&mut hasher);
    hasher.finish()
}

/// Keeps the start of long texts, so that lists stay small.
fn shorten(mut spec: CommandSpec) -> CommandSpec {
    fn cut(text: &mut String) -> &mut String {
        let end = (0..=INFO_TEXT_LEN_MAX.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or(0));
        text.shrink_to_fit();
        text
    }
    cut(&mut spec.cmd);
    spec.args.truncate(INFO_ITEMS_MAX);
    for arg in &mut spec.args {
        cut(arg);
    }
    // Values may be secrets: they are not for lists.
    let names = spec.envs.into_keys().take(INFO_ITEMS_MAX);
    spec.envs = names.map(|mut name| (std::mem::take(cut(&mut name)), String::new())).collect();
    spec
}
