//! QEMU's machine protocol: one JSON object a line; see QEMU's `docs/interop/qmp-spec.txt`.

mod message;

pub use message::Event;
use message::Incoming;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{mpsc, oneshot};

/// Longest line that QEMU may send, bytes.
const LINE_LEN_MAX: u64 = 1 << 20;
/// Longest wait for an answer.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(30);
/// Commands that may wait to be written.
const COMMANDS_QUEUED_MAX: usize = 16;
/// Events that may wait to be read; later ones are dropped.
const EVENTS_QUEUED_MAX: usize = 64;

/// Why a QMP command failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QmpError {
    /// QEMU refused it.
    #[error("QEMU refused {command}: {message}")]
    Refused {
        /// The command.
        command: &'static str,
        /// QEMU's words.
        message: String,
    },
    /// The connection is gone, normally because QEMU is.
    #[error("QEMU is gone (command {command})")]
    Gone {
        /// The command.
        command: &'static str,
    },
    /// No answer in time.
    #[error("QEMU did not answer {command} within {ANSWER_WAIT_MAX:?}")]
    Slow {
        /// The command.
        command: &'static str,
    },
}

type Answer = Result<Value, String>;
/// Who waits for which answer; `None` once none will come any more.
type Pending = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<Answer>>>>>;

/// A connection to one QEMU. Ends when the peer does.
#[derive(Debug)]
pub struct Qmp {
    commands: mpsc::Sender<String>,
    pending: Pending,
    next_id: std::sync::atomic::AtomicU64,
}

fn lock(pending: &Pending) -> std::sync::MutexGuard<'_, Option<HashMap<u64, oneshot::Sender<Answer>>>> {
    // A map of senders stays sound whatever a panicking holder did.
    pending.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Qmp {
    /// Takes a connected stream, negotiates, and gives the events that follow.
    pub async fn start<S>(stream: S) -> Result<(Qmp, mpsc::Receiver<Event>), QmpError>
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (reader, mut writer) = tokio::io::split(stream);
        let (commands, mut queue) = mpsc::channel::<String>(COMMANDS_QUEUED_MAX);
        let (events, receiver) = mpsc::channel(EVENTS_QUEUED_MAX);
        let pending = Pending::new(Mutex::new(Some(HashMap::new())));
        tokio::spawn(async move {
            while let Some(line) = queue.recv().await {
                if writer.write_all(line.as_bytes()).await.is_err() {
                    break;
                }
            }
        });
        let waiting = pending.clone();
        tokio::spawn(async move {
            read_all(BufReader::new(reader), &waiting, &events).await;
            // Dropping the senders tells every waiter that QEMU is gone.
            lock(&waiting).take();
        });
        let qmp = Qmp { commands, pending, next_id: 1.into() };
        qmp.execute("qmp_capabilities", Value::Null).await?;
        Ok((qmp, receiver))
    }

    /// Runs one command and gives what it returned. `Value::Null` means no arguments.
    pub async fn execute(&self, command: &'static str, arguments: Value) -> Result<Value, QmpError> {
        let id = self.next_id.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        match lock(&self.pending).as_mut() {
            Some(pending) => drop(pending.insert(id, sender)),
            None => return Err(QmpError::Gone { command }),
        }
        let mut message = json!({ "execute": command, "id": id });
        if !arguments.is_null() {
            message["arguments"] = arguments;
        }
        let gone = QmpError::Gone { command };
        if self.commands.send(format!("{message}\n")).await.is_err() {
            self.forget(id);
            return Err(gone);
        }
        match tokio::time::timeout(ANSWER_WAIT_MAX, receiver).await {
            Ok(Ok(Ok(value))) => Ok(value),
            Ok(Ok(Err(message))) => Err(QmpError::Refused { command, message }),
            Ok(Err(_)) => Err(gone),
            Err(_) => {
                self.forget(id);
                Err(QmpError::Slow { command })
            }
        }
    }

    fn forget(&self, id: u64) {
        if let Some(pending) = lock(&self.pending).as_mut() {
            pending.remove(&id);
        }
    }
}

async fn read_all(mut reader: impl AsyncBufReadExt + Unpin, pending: &Pending, events: &mpsc::Sender<Event>) {
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut bounded = (&mut reader).take(LINE_LEN_MAX);
        match bounded.read_until(b'\n', &mut line).await {
            Ok(n) if n > 0 && line.ends_with(b"\n") => {}
            _ => return,
        }
        match Incoming::parse(&line) {
            Some(Incoming::Answer { id, answer }) => {
                if let Some(waiter) = lock(pending).as_mut().and_then(|pending| pending.remove(&id)) {
                    let _ = waiter.send(answer);
                }
            }
            // A full queue loses the event: every state that matters can also be asked for.
            Some(Incoming::Event(event)) => drop(events.try_send(event)),
            Some(Incoming::Greeting) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers each command with what the test scripted.
    async fn peer(stream: tokio::io::DuplexStream, script: &'static [(&'static str, &'static str)]) {
        let (reader, mut writer) = tokio::io::split(stream);
        writer.write_all(b"{\"QMP\":{\"version\":{}}}\n").await.unwrap();
        let mut lines = BufReader::new(reader).lines();
        for (command, answer) in script {
            let line = lines.next_line().await.unwrap().unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(message["execute"], *command);
            let answer = answer.replace("$ID", &message["id"].to_string());
            writer.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn answers_errors_events_and_a_death() {
        let (ours, theirs) = tokio::io::duplex(4096);
        let fake = tokio::spawn(peer(
            theirs,
            &[
                ("qmp_capabilities", "{\"return\":{},\"id\":$ID}\n"),
                (
                    "query-status",
                    "garbage\n{\"event\":\"STOP\",\"timestamp\":{}}\n{\"return\":{\"running\":true},\"id\":$ID}\n",
                ),
                ("cont", "{\"error\":{\"class\":\"GenericError\",\"desc\":\"no\"},\"id\":$ID}\n"),
                ("quit", ""),
            ],
        ));
        let (qmp, mut events) = Qmp::start(ours).await.unwrap();
        assert_eq!(qmp.execute("query-status", Value::Null).await.unwrap()["running"], true);
        assert_eq!(events.recv().await.unwrap().name, "STOP");
        let refused = qmp.execute("cont", json!({})).await.unwrap_err();
        assert_eq!(refused, QmpError::Refused { command: "cont", message: "no".into() });
        assert_eq!(qmp.execute("quit", Value::Null).await.unwrap_err(), QmpError::Gone { command: "quit" });
        fake.await.unwrap();
        assert!(events.recv().await.is_none());
        // Known at once, and not after the longest wait for an answer.
        let late = tokio::time::timeout(Duration::from_secs(5), qmp.execute("stop", Value::Null)).await;
        assert_eq!(late.unwrap().unwrap_err(), QmpError::Gone { command: "stop" });
    }
}
