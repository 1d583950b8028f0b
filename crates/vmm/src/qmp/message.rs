use serde_json::Value;

/// Something that happened in QEMU without being asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// QEMU's name for it, such as `SHUTDOWN`, `GUEST_PANICKED`, `MIGRATION`.
    pub name: String,
    /// What it carries; `Null` if nothing.
    pub data: Value,
}

/// One line from QEMU.
#[derive(Debug, PartialEq)]
pub(super) enum Incoming {
    Greeting,
    Answer { id: u64, answer: Result<Value, String> },
    Event(Event),
}

impl Incoming {
    /// `None` for anything that is not a QMP message with an id of ours.
    pub(super) fn parse(line: &[u8]) -> Option<Incoming> {
        let mut message: Value = serde_json::from_slice(line).ok()?;
        if message.get("QMP").is_some() {
            return Some(Incoming::Greeting);
        }
        if let Some(name) = message.get("event").and_then(Value::as_str) {
            let event = Event { name: name.to_owned(), data: message["data"].take() };
            return Some(Incoming::Event(event));
        }
        let id = message.get("id")?.as_u64()?;
        let answer = if let Some(value) = message.get_mut("return") {
            Ok(value.take())
        } else {
            let text = message.get("error")?.get("desc").and_then(Value::as_str).unwrap_or("unknown error");
            Err(text.to_owned())
        };
        Some(Incoming::Answer { id, answer })
    }
}
