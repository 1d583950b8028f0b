//! Sessions that outlive their streams.

use crate::client::{Agent, Client, SOON, bash};
use http::Method;
use prost::Message;
use warren_proto::guest::command_session::{
    Code, CommandInput, CommandSessionSelector, ConnectError, ConnectRequest, Empty, Event, Input, ListRequest,
    ListResponse, Pty, PtySize, STREAM_CONTENT_TYPE, Selector, SendInputRequest, SendSignalRequest, StartRequest,
    StreamInputData, StreamInputEvent, StreamInputRequest, StreamInputStart, UpdateRequest, envelope,
};

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

fn session() -> Option<CommandSessionSelector> {
    Some(CommandSessionSelector { selector: Some(Selector::SessionUuid(UUID.into())) })
}

fn live(script: &str) -> StartRequest {
    StartRequest { stdin: Some(true), session_uuid: Some(UUID.into()), ..bash(script) }
}

async fn send(client: &Client, data: &str, uuid: Option<&str>) -> Result<Empty, ConnectError> {
    let input = Some(CommandInput { input: Some(Input::Stdin(data.to_owned().into())) });
    client
        .unary("SendInput", &SendInputRequest { session: session(), input, input_uuid: uuid.map(str::to_owned) })
        .await
}

async fn signal(client: &Client, signal: i32, uuid: &str) -> Result<Empty, ConnectError> {
    client.unary("SendSignal", &SendSignalRequest { session: session(), signal, signal_uuid: Some(uuid.into()) }).await
}

#[tokio::test]
async fn input_is_written_once_for_each_uuid_and_closed_by_nothing() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let watch = client.start(&live("cat")).await;
    for _ in 0..3 {
        send(&client, "once\n", Some("00000000-0000-0000-0000-000000000001")).await.unwrap();
    }
    send(&client, "again\n", None).await.unwrap();
    assert_eq!(send(&client, "x", Some("not-a-uuid")).await.unwrap_err().code, Code::InvalidArgument);
    send(&client, "", None).await.unwrap();
    assert_eq!(send(&client, "x", None).await.unwrap_err().code, Code::FailedPrecondition);
    let output = watch.output().await;
    assert_eq!((output.text(), output.code()), ("once\nagain\n", 0));
}

#[tokio::test]
async fn a_large_input_waits_for_its_reader() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let watch = client.start(&live("sleep 0.3; wc -c")).await;
    send(&client, &"x".repeat(1 << 20), None).await.unwrap();
    send(&client, "", None).await.unwrap();
    assert_eq!(watch.output().await.text(), "1048576\n");
}

#[tokio::test]
async fn signals_reach_the_whole_group_once() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let mut watch =
        client.start(&live("trap 'echo term' TERM; sleep 1000 & echo ready; wait; wait; sleep 1000 & wait")).await;
    watch.pid().await;
    assert!(matches!(watch.event().await, Event::Data(_)));
    for _ in 0..3 {
        signal(&client, 15, "00000000-0000-0000-0000-000000000002").await.unwrap();
    }
    assert!(matches!(watch.event().await, Event::Data(_)), "the trap ran");
    for bad in [0, 2, 99] {
        let refused = signal(&client, bad, "00000000-0000-0000-0000-000000000003").await;
        assert_eq!(refused.unwrap_err().code, Code::InvalidArgument);
    }
    signal(&client, 9, "00000000-0000-0000-0000-000000000004").await.unwrap();
    let Event::End(end) = watch.event().await else { panic!("the trap ran again") };
    assert_eq!(end.exit_code, 137);
    // To one that has ended it is fine, and does nothing.
    signal(&client, 9, "00000000-0000-0000-0000-000000000005").await.unwrap();
}

#[tokio::test]
async fn a_repeated_start_attaches_and_never_runs_twice() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let file = agent.path("runs");
    let request = live(&format!("echo run >> {file}; read x; echo $x; exit 5"));
    let mut first = client.start(&request).await;
    let pid = first.pid().await;
    let mut second = agent.connect().await.start(&request).await;
    assert_eq!(second.pid().await, pid);
    let refused = client.start(&live("other")).await.output().await;
    assert_eq!(refused.error_code(), Code::FailedPrecondition);
    // Both streams are open and show the same.
    send(&client, "hello\n", None).await.unwrap();
    for mut watch in [first, second] {
        assert!(matches!(watch.event().await, Event::Data(_)));
        assert!(matches!(watch.event().await, Event::End(end) if end.exit_code == 5));
    }
    // The end is told again.
    let output = client.start(&request).await.output().await;
    assert_eq!((output.pid, output.text(), output.code()), (pid, "", 5));
    let output = client.stream("Connect", &ConnectRequest { session: session() }, None).await.output().await;
    assert_eq!((output.pid, output.code()), (pid, 5));
    assert_eq!(std::fs::read_to_string(file).unwrap(), "run\n");
}

#[tokio::test]
async fn a_session_survives_its_connection() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let file = agent.path("go");
    let request = live(&format!("while [ ! -e {file} ]; do echo lost; sleep 0.02; done; sleep 0.3; echo seen; exit 6"));
    let pid = client.stream("Start", &request, Some("86400000")).await.pid().await;
    client.hang_up();
    let client = agent.connect().await;
    let mut watch = client.stream("Connect", &ConnectRequest { session: session() }, None).await;
    assert_eq!(watch.pid().await, pid);
    std::fs::write(&file, "").unwrap();
    let output = loop {
        match watch.event().await {
            Event::Data(data) => assert!(data.output.is_some()),
            Event::End(end) => break end,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(output.exit_code, 6);
}

#[tokio::test]
async fn a_stream_of_a_session_ends_at_its_deadline_and_the_command_goes_on() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let output = client.stream("Start", &live("read x; exit 2"), Some("200")).await.output().await;
    assert_eq!(output.error_code(), Code::DeadlineExceeded);
    let watch = client.stream("Connect", &ConnectRequest { session: session() }, None).await;
    send(&client, "x\n", None).await.unwrap();
    assert_eq!(watch.output().await.code(), 2);
}

#[tokio::test]
async fn sessions_are_listed_while_they_run() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let mut request = live(&format!("read x; : {}", "y".repeat(5000)));
    request.command.as_mut().unwrap().envs.insert("SECRET".into(), "value".into());
    let pid = client.start(&request).await.pid().await;
    let list: ListResponse = client.unary("List", &ListRequest {}).await.unwrap();
    assert_eq!((list.sessions.len(), list.sessions[0].pid), (1, pid));
    let command = list.sessions[0].command.clone().unwrap();
    assert_eq!((command.cmd.as_str(), command.envs["SECRET"].as_str()), ("/bin/bash", ""));
    send(&client, "x\n", None).await.unwrap();
    wait_for_end(&client).await;
}

async fn wait_for_end(client: &Client) {
    let deadline = std::time::Instant::now() + SOON;
    loop {
        let list: ListResponse = client.unary("List", &ListRequest {}).await.unwrap();
        if list.sessions.is_empty() {
            return;
        }
        assert!(std::time::Instant::now() < deadline, "the session stays listed");
    }
}

#[tokio::test]
async fn unknown_and_malformed_sessions_are_refused() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let connect = |selector| ConnectRequest { session: Some(CommandSessionSelector { selector }) };
    for (selector, code) in [
        (Some(Selector::SessionUuid(UUID.into())), Code::NotFound),
        (Some(Selector::SessionUuid(UUID.to_uppercase())), Code::InvalidArgument),
        (Some(Selector::Pid(4_000_000)), Code::NotFound),
        (None, Code::InvalidArgument),
    ] {
        let output = client.stream("Connect", &connect(selector), None).await.output().await;
        assert_eq!(output.error_code(), code);
    }
    let bad = StartRequest { session_uuid: Some("x".into()), ..bash("true") };
    assert_eq!(client.start(&bad).await.output().await.error_code(), Code::InvalidArgument);
    let missing: Result<Empty, _> = client.unary("Nothing", &Empty {}).await;
    assert_eq!(missing.unwrap_err().code, Code::Unimplemented);
}

#[tokio::test]
async fn a_terminal_has_its_size_and_takes_input() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let pty = |cols, rows| Some(Pty { size: Some(PtySize { cols, rows }) });
    let script = "trap 'stty size' WINCH; tty; stty size; while :; do read -t 0.05 line && echo \"got $line\"; done";
    let request = StartRequest { pty: pty(100, 30), session_uuid: Some(UUID.into()), ..bash(script) };
    let mut watch = client.start(&request).await;
    watch.pid().await;
    let mut seen = String::new();
    for (wanted, then) in [("30 100", 0), ("40 120", 1), ("got hello", 2)] {
        while !seen.contains(wanted) {
            let Event::Data(data) = watch.event().await else { panic!("{seen}") };
            seen.push_str(&format!("{:?}", data.output.unwrap()));
        }
        if then == 0 {
            let update = UpdateRequest { session: session(), pty: pty(120, 40) };
            client.unary::<Empty>("Update", &update).await.unwrap();
        } else if then == 1 {
            let input = Some(CommandInput { input: Some(Input::Pty("hello\n".into())) });
            let request = SendInputRequest { session: session(), input, input_uuid: None };
            client.unary::<Empty>("SendInput", &request).await.unwrap();
        }
    }
    assert!(seen.contains("/dev/pts/") || seen.contains("/dev/pt"), "{seen}");
    signal(&client, 9, "00000000-0000-0000-0000-000000000009").await.unwrap();
    while !matches!(watch.event().await, Event::End(end) if end.exit_code == 137) {}
}

#[tokio::test]
async fn a_terminals_output_is_whole() {
    let agent = Agent::start();
    let pty = Some(Pty { size: None });
    let output = agent.connect().await.start(&StartRequest { pty, ..bash("seq 1 200000") }).await.output().await;
    let text = String::from_utf8(output.terminal).unwrap().replace('\r', "");
    assert_eq!(text, (1..=200_000).map(|n| format!("{n}\n")).collect::<String>());
}

#[tokio::test]
async fn a_stream_of_input_is_written_in_order() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let watch = client.start(&live("head -n 2")).await;
    let data = |text: &str| {
        let input = Some(CommandInput { input: Some(Input::Stdin(text.to_owned().into())) });
        StreamInputEvent::Data(StreamInputData { input })
    };
    let start = StreamInputEvent::Start(StreamInputStart { session: session() });
    let events = [start, data("one\n"), StreamInputEvent::Keepalive(Empty {}), data("two\n")];
    let message = |event| envelope(0, &StreamInputRequest { event: Some(event) }.encode_to_vec());
    let body: Vec<u8> = events.into_iter().flat_map(message).collect();
    let target = "/command_session.CommandSession/StreamInput";
    let answer = client.request(Method::POST, target, &[("content-type", STREAM_CONTENT_TYPE)], &body).await;
    assert_eq!(&answer.all().await.unwrap()[..], b"\0\0\0\0\0\x02\0\0\0\x02{}");
    assert_eq!(watch.output().await.text(), "one\ntwo\n");
}

#[tokio::test]
async fn a_stalled_older_stream_does_not_hold_a_newer_one_up() {
    let agent = Agent::start();
    let client = agent.connect().await;
    let request = live("read x; head -c 8000000 /dev/zero; exit 1");
    let mut stalled = client.start(&request).await;
    stalled.pid().await;
    let newer = agent.connect().await;
    let watch = newer.start(&request).await;
    send(&newer, "go\n", None).await.unwrap();
    let output = watch.output().await;
    assert_eq!((output.stdout.len(), output.code()), (8_000_000, 1));
    agent.check_memory();
}
