use crate::process::Exit;
use bytes::Bytes;
use prost::Message;
use warren_proto::guest::command_session::{
    ConnectError, END_STREAM, Empty, EndEvent, EndOfStream, Event, EventResponse, HEADER_LEN, StartEvent, envelope,
    envelope_header,
};

/// Most bytes before the output in a data frame: envelope header, then three nested messages of one tag and a length each.
pub(super) const DATA_PREFIX_LEN_MAX: usize = HEADER_LEN + 3 * (1 + 5);

/// How a session ended, as its streams tell it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Ending {
    /// The leader ended.
    Event(EndEvent),
    /// The stream ends with an error instead.
    Error(ConnectError),
}

/// Which output bytes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    Stdout = 1,
    Stderr = 2,
    Terminal = 3,
}

/// The end event of a leader that ended so.
pub(super) fn end_event(exit: Exit, oom_killed: bool) -> EndEvent {
    let status = match exit {
        Exit::Code(code) => format!("exit status {code}"),
        Exit::Signal(signal) => format!("signal: {}", signal_name(signal)),
    };
    let error = oom_killed.then(|| "oom_killed".to_owned());
    EndEvent { exit_code: exit.code(), exited: matches!(exit, Exit::Code(_)), status, error }
}

fn signal_name(signal: i32) -> String {
    const NAMES: [&str; 16] = [
        "", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM",
    ];
    match NAMES.get(signal as usize) {
        Some(name) if signal > 0 => format!("SIG{name}"),
        _ => signal.to_string(),
    }
}

/// The frame of an event.
pub(super) fn frame(event: Event) -> Bytes {
    envelope(0, &EventResponse::new(event).encode_to_vec())
}

/// The frame of a start event.
pub(super) fn start_frame(pid: u32) -> Bytes {
    frame(Event::Start(StartEvent { pid }))
}

/// The frame of a keep-alive event.
pub(super) fn keepalive_frame() -> Bytes {
    frame(Event::Keepalive(Empty {}))
}

/// All frames that end a stream, in one piece.
pub(super) fn end_frames(ending: &Ending) -> Bytes {
    match ending {
        Ending::Event(end) => {
            let event = frame(Event::End(end.clone()));
            [&event[..], &envelope(END_STREAM, b"{}")].concat().into()
        }
        Ending::Error(error) => error_frame(error),
    }
}

/// The frame that ends a stream with an error.
pub(crate) fn error_frame(error: &ConnectError) -> Bytes {
    envelope(END_STREAM, &EndOfStream { error: Some(error.clone()) }.to_json())
}

/// The frame of some output, the same bytes as [`frame`] would give, with a single copy.
pub(super) fn data_frame(channel: Channel, output: &[u8]) -> Bytes {
    // Fields: EventResponse.event = 1, CommandSessionEvent.data = 2, DataEvent.{stdout, stderr, pty} = 1, 2, 3.
    let tags = [channel as u8, 2, 1];
    let mut prefix = [0u8; DATA_PREFIX_LEN_MAX];
    let mut at = prefix.len();
    let mut len = output.len();
    for tag in tags {
        let mut number = [0u8; 5];
        let mut digits = 0;
        let mut rest = len;
        loop {
            number[digits] = (rest & 0x7f) as u8 | if rest > 0x7f { 0x80 } else { 0 };
            digits += 1;
            rest >>= 7;
            if rest == 0 {
                break;
            }
        }
        at -= digits + 1;
        prefix[at] = tag << 3 | 2;
        prefix[at + 1..at + 1 + digits].copy_from_slice(&number[..digits]);
        len += digits + 1;
    }
    at -= HEADER_LEN;
    prefix[at..at + HEADER_LEN].copy_from_slice(&envelope_header(0, len as u32));
    [&prefix[at..], output].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use warren_proto::guest::command_session::{DataEvent, Output};

    proptest! {
        #[test]
        fn the_short_way_gives_the_same_bytes(len in prop_oneof![0usize..300, 16_000usize..17_000, 65_000usize..66_000]) {
            let bytes = Bytes::from(vec![7u8; len]);
            for (channel, output) in [
                (Channel::Stdout, Output::Stdout(bytes.clone())),
                (Channel::Stderr, Output::Stderr(bytes.clone())),
                (Channel::Terminal, Output::Pty(bytes.clone())),
            ] {
                let wanted = frame(Event::Data(DataEvent { output: Some(output) }));
                prop_assert_eq!(data_frame(channel, &bytes), wanted);
            }
        }
    }

    #[test]
    fn ends_tell_what_happened() {
        let end = end_event(Exit::Signal(9), true);
        assert_eq!((end.exit_code, end.exited, end.status.as_str()), (137, false, "signal: SIGKILL"));
        assert_eq!(end.error.as_deref(), Some("oom_killed"));
        assert_eq!(end_event(Exit::Code(3), false).status, "exit status 3");
        assert_eq!(end_event(Exit::Signal(34), false).status, "signal: 34");
    }
}
