use bytes::Bytes;
use std::collections::BTreeMap;

/// A terminal for the command, with its size.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Pty {
    /// Size.
    #[prost(message, optional, tag = "1")]
    pub size: Option<PtySize>,
}

/// Size of a terminal in characters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct PtySize {
    /// Columns.
    #[prost(uint32, tag = "1")]
    pub cols: u32,
    /// Rows.
    #[prost(uint32, tag = "2")]
    pub rows: u32,
}

/// What to run.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct CommandSpec {
    /// Program; always `/bin/bash` from the public client.
    #[prost(string, tag = "1")]
    pub cmd: String,
    /// Arguments; always `-c` and a script from the public client.
    #[prost(string, repeated, tag = "2")]
    pub args: Vec<String>,
    /// Extra environment; wins over the sandbox's own.
    #[prost(btree_map = "string, string", tag = "3")]
    pub envs: BTreeMap<String, String>,
    /// Working directory; absent: the image's.
    #[prost(string, optional, tag = "4")]
    pub cwd: Option<String>,
    /// User; absent: the image's.
    #[prost(string, optional, tag = "5")]
    pub user: Option<String>,
}

/// Asks for the running sessions.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ListRequest {}

/// One running session.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CommandSessionInfo {
    /// What it runs.
    #[prost(message, optional, tag = "1")]
    pub command: Option<CommandSpec>,
    /// Pid of its leader in the guest.
    #[prost(uint32, tag = "2")]
    pub pid: u32,
    /// Its UUID, if the client gave one.
    #[prost(string, optional, tag = "4")]
    pub session_uuid: Option<String>,
}

/// The running sessions.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListResponse {
    /// One entry a session.
    #[prost(message, repeated, tag = "1")]
    pub sessions: Vec<CommandSessionInfo>,
}

/// Starts a command, or attaches to the session of that UUID.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct StartRequest {
    /// What to run.
    #[prost(message, optional, tag = "1")]
    pub command: Option<CommandSpec>,
    /// Run it on a terminal.
    #[prost(message, optional, tag = "2")]
    pub pty: Option<Pty>,
    /// Whether input will be sent; otherwise the command reads end of file.
    #[prost(bool, optional, tag = "4")]
    pub stdin: Option<bool>,
    /// Canonical lower-case UUID: makes the call idempotent and the session one that can be attached to.
    #[prost(string, optional, tag = "5")]
    pub session_uuid: Option<String>,
}

/// Names a session.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CommandSessionSelector {
    /// How it is named.
    #[prost(oneof = "Selector", tags = "1, 3")]
    pub selector: Option<Selector>,
}

/// The two names of a session.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Selector {
    /// Pid of the leader.
    #[prost(uint32, tag = "1")]
    Pid(u32),
    /// UUID given at the start.
    #[prost(string, tag = "3")]
    SessionUuid(String),
}

/// Changes the size of a session's terminal.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UpdateRequest {
    /// Which session.
    #[prost(message, optional, tag = "1")]
    pub session: Option<CommandSessionSelector>,
    /// New size.
    #[prost(message, optional, tag = "2")]
    pub pty: Option<Pty>,
}

/// The answer of calls that have nothing to say.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Empty {}

/// One event of a session. `StartResponse` and `ConnectResponse` are [`EventResponse`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CommandSessionEvent {
    /// Which event.
    #[prost(oneof = "Event", tags = "1, 2, 3, 4")]
    pub event: Option<Event>,
}

/// The events of a session.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Event {
    /// First of a stream.
    #[prost(message, tag = "1")]
    Start(StartEvent),
    /// Output.
    #[prost(message, tag = "2")]
    Data(DataEvent),
    /// Last of a stream.
    #[prost(message, tag = "3")]
    End(EndEvent),
    /// Nothing happened for a while.
    #[prost(message, tag = "4")]
    Keepalive(Empty),
}

/// The command runs.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct StartEvent {
    /// Pid of its leader in the guest.
    #[prost(uint32, tag = "1")]
    pub pid: u32,
}

/// Output of the command.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DataEvent {
    /// Bytes of one of its streams.
    #[prost(oneof = "Output", tags = "1, 2, 3")]
    pub output: Option<Output>,
}

/// Bytes of one output stream.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Output {
    /// Standard output.
    #[prost(bytes = "bytes", tag = "1")]
    Stdout(Bytes),
    /// Standard error.
    #[prost(bytes = "bytes", tag = "2")]
    Stderr(Bytes),
    /// The terminal.
    #[prost(bytes = "bytes", tag = "3")]
    Pty(Bytes),
}

/// The command ended.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct EndEvent {
    /// Exit code; 128+n after signal n.
    #[prost(sint32, tag = "1")]
    pub exit_code: i32,
    /// Whether it exited by itself, not by a signal.
    #[prost(bool, tag = "2")]
    pub exited: bool,
    /// `exit status N` or `signal: NAME`.
    #[prost(string, tag = "3")]
    pub status: String,
    /// Such as `oom_killed`.
    #[prost(string, optional, tag = "4")]
    pub error: Option<String>,
}

/// One message of the streams of `Start` and `Connect`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct EventResponse {
    /// The event.
    #[prost(message, optional, tag = "1")]
    pub event: Option<CommandSessionEvent>,
}

impl EventResponse {
    /// Wraps an event.
    pub fn new(event: Event) -> Self {
        Self { event: Some(CommandSessionEvent { event: Some(event) }) }
    }

    /// The event inside, if there is one that we know.
    pub fn into_event(self) -> Option<Event> {
        self.event?.event
    }
}

/// Bytes for a command.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CommandInput {
    /// Where they go.
    #[prost(oneof = "Input", tags = "1, 2")]
    pub input: Option<Input>,
}

/// Where input goes.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Input {
    /// Standard input. No bytes: end of file (the public client never sends that).
    #[prost(bytes = "bytes", tag = "1")]
    Stdin(Bytes),
    /// The terminal.
    #[prost(bytes = "bytes", tag = "2")]
    Pty(Bytes),
}

/// Writes to a session's input.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SendInputRequest {
    /// Which session.
    #[prost(message, optional, tag = "1")]
    pub session: Option<CommandSessionSelector>,
    /// What.
    #[prost(message, optional, tag = "2")]
    pub input: Option<CommandInput>,
    /// Makes the call idempotent.
    #[prost(string, optional, tag = "3")]
    pub input_uuid: Option<String>,
}

/// One message of the stream of `StreamInput`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StreamInputRequest {
    /// Which.
    #[prost(oneof = "StreamInputEvent", tags = "1, 2, 3")]
    pub event: Option<StreamInputEvent>,
}

/// The messages of `StreamInput`.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum StreamInputEvent {
    /// First: names the session.
    #[prost(message, tag = "1")]
    Start(StreamInputStart),
    /// Input.
    #[prost(message, tag = "2")]
    Data(StreamInputData),
    /// Nothing.
    #[prost(message, tag = "3")]
    Keepalive(Empty),
}

/// Names the session that a stream of input is for.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StreamInputStart {
    /// Which session.
    #[prost(message, optional, tag = "1")]
    pub session: Option<CommandSessionSelector>,
}

/// Input of a stream.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StreamInputData {
    /// What.
    #[prost(message, optional, tag = "1")]
    pub input: Option<CommandInput>,
}

/// Signals of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Signal {
    /// None: refused.
    Unspecified = 0,
    /// SIGKILL.
    Sigkill = 9,
    /// SIGTERM.
    Sigterm = 15,
}

/// Sends a signal to a session's process group.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SendSignalRequest {
    /// Which session.
    #[prost(message, optional, tag = "1")]
    pub session: Option<CommandSessionSelector>,
    /// Which signal.
    #[prost(enumeration = "Signal", tag = "2")]
    pub signal: i32,
    /// Makes the call idempotent.
    #[prost(string, optional, tag = "3")]
    pub signal_uuid: Option<String>,
}

/// Attaches to a session.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ConnectRequest {
    /// Which session.
    #[prost(message, optional, tag = "1")]
    pub session: Option<CommandSessionSelector>,
}
