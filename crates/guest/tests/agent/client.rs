//! A client of the agent, for one test.

use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, Method, Request, StatusCode};
use prost::Message;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use warren_proto::guest::command_session::{
    Code, CommandSpec, ConnectError, DataEvent, EndEvent, EndOfStream, Envelope, EnvelopeDecoder, Event, EventResponse,
    Output as OutputBytes, STREAM_CONTENT_TYPE, StartEvent, StartRequest, TIMEOUT_HEADER, UNARY_CONTENT_TYPE, envelope,
};
use warren_proto::guest::limits;

/// Longest wait for anything that must happen.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// An agent process of its own for each test.
pub(crate) struct Agent {
    process: Child,
    pub(crate) folder: tempfile::TempDir,
    cgroup: PathBuf,
}

impl Agent {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // One for each agent, as many of which as there are threads share this process.
        let name = folder.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.');
        let cgroup = cgroup_root().join(format!("warren-test-{name}"));
        let process = Command::new(env!("CARGO_BIN_EXE_warren-guest"))
            .arg("serve")
            .args([&folder.path().join("socket"), &cgroup])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let agent = Self { process, folder, cgroup };
        let is_up = || std::os::unix::net::UnixStream::connect(agent.folder.path().join("socket")).is_ok();
        wait_for_blocking("agent", is_up);
        agent
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Whether every process of a command can be killed; without, some tests say nothing.
    pub(crate) fn has_cgroups(&self) -> bool {
        self.cgroup.join("cgroup.kill").exists()
    }

    /// Fails if the agent's memory ever was more than it may be.
    pub(crate) fn check_memory(&self) {
        // Code without optimisation is large by itself.
        let kib_max = if cfg!(debug_assertions) { 13 << 10 } else { 8 << 10 };
        let kib = self.peak_kib();
        assert!(kib < kib_max, "{kib} KiB");
    }

    fn peak_kib(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = text.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
    }

    pub(crate) async fn connect(&self) -> Client {
        let stream = UnixStream::connect(self.folder.path().join("socket")).await.unwrap();
        let (sender, connection) = h2::client::Builder::new()
            .initial_window_size(limits::STREAM_WINDOW)
            .initial_connection_window_size(limits::CONNECTION_WINDOW)
            .max_frame_size(limits::FRAME_LEN_MAX)
            .handshake(stream)
            .await
            .unwrap();
        let task = tokio::spawn(async move { drop(connection.await) });
        Client { sender, task }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // What the test left running goes first, so that the folders can be removed.
        let _ = std::fs::write(self.cgroup.join("cgroup.kill"), "1");
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let gone = || {
            let folders = std::fs::read_dir(&self.cgroup).into_iter().flatten().flatten();
            folders.for_each(|folder| drop(std::fs::remove_dir(folder.path())));
            !self.cgroup.exists() || std::fs::remove_dir(&self.cgroup).is_ok()
        };
        wait_for_blocking("the cgroups' end", gone);
    }
}

fn cgroup_root() -> &'static Path {
    let unified = Path::new("/sys/fs/cgroup/unified");
    if unified.exists() { unified } else { Path::new("/sys/fs/cgroup") }
}

/// Waits for a condition, looking every few milliseconds.
pub(crate) async fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "no {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The same where nothing else goes on.
fn wait_for_blocking(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "no {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// One connection.
pub(crate) struct Client {
    sender: SendRequest<Bytes>,
    task: tokio::task::JoinHandle<()>,
}

impl Client {
    /// Cuts the connection, as the end of a shim does.
    pub(crate) fn hang_up(self) {
        self.task.abort();
    }

    /// Sends a request without body or the start of one; the body is `finish`ed by the caller.
    pub(crate) async fn begin(
        &self,
        method: Method,
        target: &str,
        headers: &[(&str, &str)],
    ) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
        let mut request = Request::builder().method(method).uri(format!("http://guest{target}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut sender = self.sender.clone().ready().await.unwrap();
        sender.send_request(request.body(()).unwrap(), false).unwrap()
    }

    pub(crate) async fn request(&self, method: Method, target: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let (answer, mut stream) = self.begin(method, target, headers).await;
        send_all(&mut stream, Bytes::copy_from_slice(body)).await;
        // An answer may come before all of the body has gone.
        let _ = stream.send_data(Bytes::new(), true);
        let (head, body) = answer.await.unwrap().into_parts();
        Answer { status: head.status, headers: head.headers, body }
    }

    /// Calls a streaming method with one message.
    pub(crate) async fn stream(&self, method: &str, message: &impl Message, timeout: Option<&str>) -> Watch {
        let mut headers = vec![("content-type", STREAM_CONTENT_TYPE), ("connect-protocol-version", "1")];
        headers.extend(timeout.map(|timeout| (TIMEOUT_HEADER, timeout)));
        let target = format!("/command_session.CommandSession/{method}");
        let answer = self.request(Method::POST, &target, &headers, &envelope(0, &message.encode_to_vec())).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!(answer.headers["content-type"], STREAM_CONTENT_TYPE);
        Watch { body: answer.body, decoder: EnvelopeDecoder::new(1 << 20) }
    }

    pub(crate) async fn start(&self, request: &StartRequest) -> Watch {
        self.stream("Start", request, Some("30000")).await
    }

    /// Runs a script to its end.
    pub(crate) async fn run(&self, script: &str) -> Output {
        self.start(&bash(script)).await.output().await
    }

    pub(crate) async fn unary<A: Message + Default>(
        &self,
        method: &str,
        message: &impl Message,
    ) -> Result<A, ConnectError> {
        let headers =
            [("content-type", UNARY_CONTENT_TYPE), ("content-encoding", "identity"), (TIMEOUT_HEADER, "10000")];
        let target = format!("/command_session.CommandSession/{method}");
        let answer = self.request(Method::POST, &target, &headers, &message.encode_to_vec()).await;
        let (status, content_type) = (answer.status, answer.headers["content-type"].clone());
        let body = answer.all().await.unwrap();
        if status == StatusCode::OK {
            assert_eq!(content_type, UNARY_CONTENT_TYPE);
            return Ok(A::decode(body).unwrap());
        }
        assert_eq!(content_type, "application/json");
        let error: ConnectError = serde_json::from_slice(&body).unwrap();
        assert_eq!(status.as_u16(), error.code.http_status());
        Err(error)
    }

    pub(crate) async fn json(&self, method: Method, target: &str, body: &[u8]) -> (u16, serde_json::Value) {
        let answer = self.request(method, target, &[], body).await;
        let status = answer.status.as_u16();
        (status, serde_json::from_slice(&answer.all().await.unwrap()).unwrap())
    }
}

pub(crate) async fn send_all(stream: &mut h2::SendStream<Bytes>, mut data: Bytes) {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        match std::future::poll_fn(|cx| stream.poll_capacity(cx)).await {
            Some(Ok(len)) => {
                if stream.send_data(data.split_to(len.min(data.len())), false).is_err() {
                    return;
                }
            }
            // The peer has answered already and takes no more.
            Some(Err(_)) | None => return,
        }
    }
}

/// A request for `/bin/bash -c SCRIPT`.
pub(crate) fn bash(script: &str) -> StartRequest {
    let command =
        CommandSpec { cmd: "/bin/bash".into(), args: vec!["-c".into(), script.into()], ..CommandSpec::default() };
    StartRequest { command: Some(command), stdin: Some(false), ..StartRequest::default() }
}

/// The stream of a session.
pub(crate) struct Watch {
    body: h2::RecvStream,
    decoder: EnvelopeDecoder,
}

/// Everything that a stream showed.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) pid: u32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) terminal: Vec<u8>,
    pub(crate) end: Option<EndEvent>,
    pub(crate) error: Option<ConnectError>,
}

impl Output {
    pub(crate) fn code(&self) -> i32 {
        self.end.as_ref().unwrap_or_else(|| panic!("no end event: {:?}", self.error)).exit_code
    }

    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.stdout).unwrap()
    }

    pub(crate) fn error_code(&self) -> Code {
        self.error.as_ref().unwrap_or_else(|| panic!("no error: {:?}", self.end)).code
    }
}

impl Watch {
    /// The next frame; the window for it is given back. `None` at the end of the body.
    pub(crate) async fn frame(&mut self) -> Option<Envelope> {
        loop {
            if let Some(envelope) = self.decoder.next().unwrap() {
                return Some(envelope);
            }
            let part =
                tokio::time::timeout(SOON, self.body.data()).await.expect("a frame in time")?.expect("a whole body");
            self.body.flow_control().release_capacity(part.len()).unwrap();
            self.decoder.push(&part);
        }
    }

    pub(crate) async fn event(&mut self) -> Event {
        let frame = self.frame().await.unwrap();
        assert!(!frame.end_stream, "{:?}", frame.payload);
        EventResponse::decode(frame.payload).unwrap().into_event().unwrap()
    }

    /// The first event.
    pub(crate) async fn pid(&mut self) -> u32 {
        match self.event().await {
            Event::Start(StartEvent { pid }) => pid,
            other => panic!("{other:?}"),
        }
    }

    /// All of it, checked for its order: a start, output, then an end and the end frame, or an error in that.
    pub(crate) async fn output(mut self) -> Output {
        let mut output = Output::default();
        while let Some(frame) = self.frame().await {
            assert!(output.error.is_none(), "a frame behind the end");
            if frame.end_stream {
                let end = EndOfStream::parse(&frame.payload).unwrap();
                assert!(end.error.is_some() != output.end.is_some(), "{end:?}");
                output.error = end.error;
                self.decoder.finish().unwrap();
                assert!(self.body.data().await.is_none(), "the body ends behind the end frame");
                return output;
            }
            assert!(output.end.is_none(), "an event behind the end");
            match EventResponse::decode(frame.payload).unwrap().into_event().unwrap() {
                Event::Start(start) => output.pid = start.pid,
                Event::Data(DataEvent { output: Some(OutputBytes::Stdout(bytes)) }) => output.stdout.extend(bytes),
                Event::Data(DataEvent { output: Some(OutputBytes::Stderr(bytes)) }) => output.stderr.extend(bytes),
                Event::Data(DataEvent { output: Some(OutputBytes::Pty(bytes)) }) => output.terminal.extend(bytes),
                Event::Data(DataEvent { output: None }) => panic!("no output"),
                Event::End(end) => output.end = Some(end),
                Event::Keepalive(_) => {}
            }
            assert!(output.pid != 0, "the start comes first");
        }
        panic!("no end frame");
    }
}

/// An answer's head and its body's stream.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: h2::RecvStream,
}

impl Answer {
    pub(crate) async fn all(mut self) -> Result<Bytes, h2::Error> {
        let mut all = BytesMut::new();
        while let Some(part) = self.body.data().await {
            let part = part?;
            self.body.flow_control().release_capacity(part.len())?;
            all.extend_from_slice(&part);
        }
        Ok(all.freeze())
    }
}
