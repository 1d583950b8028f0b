use serde_json::json;
use std::io;
use std::time::Duration;
use warren_proto::guest::command_session::Output;

/// Bytes of one stream that `run --output json` keeps; what comes after is counted only.
const CAPTURE_LEN_MAX: usize = 64 << 20;

/// Where the output of a command goes.
#[derive(Debug)]
pub(super) enum Sink {
    /// Straight to this process's own stdout and stderr.
    Pass,
    /// Kept for one JSON document.
    Capture { stdout: Captured, stderr: Captured },
}

/// One stream, kept up to a limit.
#[derive(Debug, Default)]
pub(super) struct Captured {
    kept: Vec<u8>,
    len: u64,
}

impl Sink {
    /// A sink that keeps the output.
    pub(super) fn capture() -> Self {
        Sink::Capture { stdout: Captured::default(), stderr: Captured::default() }
    }

    /// Takes a piece of output. Blocks while the reader of our stdout is slow, which slows the command in turn.
    pub(super) fn take(&mut self, output: Output) -> io::Result<()> {
        let (captured, bytes) = match (self, output) {
            (Sink::Pass, Output::Stdout(bytes) | Output::Pty(bytes)) => {
                return write_flushed(&mut io::stdout().lock(), &bytes);
            }
            (Sink::Pass, Output::Stderr(bytes)) => return write_flushed(&mut io::stderr().lock(), &bytes),
            (Sink::Capture { stdout, .. }, Output::Stdout(bytes) | Output::Pty(bytes)) => (stdout, bytes),
            (Sink::Capture { stderr, .. }, Output::Stderr(bytes)) => (stderr, bytes),
        };
        captured.take(&bytes);
        Ok(())
    }

    /// The document, if output was kept.
    pub(super) fn document(&self, exit_code: i32, took: Duration) -> Option<serde_json::Value> {
        match self {
            Sink::Pass => None,
            Sink::Capture { stdout, stderr } => Some(json!({
                "exit_code": exit_code,
                "stdout": stdout.text(),
                "stderr": stderr.text(),
                "truncated": stdout.is_cut() || stderr.is_cut(),
                "duration_ms": took.as_secs_f64() * 1000.0,
            })),
        }
    }
}

impl Captured {
    fn take(&mut self, bytes: &[u8]) {
        let room = CAPTURE_LEN_MAX - self.kept.len();
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.len += bytes.len() as u64;
    }

    fn is_cut(&self) -> bool {
        self.len > self.kept.len() as u64
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}

fn write_flushed(out: &mut impl io::Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(bytes)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_kept_apart() {
        let mut sink = Sink::capture();
        for output in [Output::Stdout("a".into()), Output::Stderr("b".into()), Output::Stdout("c\u{fffd}".into())] {
            sink.take(output).expect("kept");
        }
        let document = sink.document(3, Duration::from_millis(5)).expect("a document");
        assert_eq!((&document["stdout"], &document["stderr"]), (&json!("ac\u{fffd}"), &json!("b")));
        assert_eq!((&document["exit_code"], &document["truncated"]), (&json!(3), &json!(false)));
    }

    #[test]
    fn more_than_the_limit_is_said() {
        let mut captured = Captured::default();
        let piece = vec![b'x'; CAPTURE_LEN_MAX];
        captured.take(&piece);
        assert!(!captured.is_cut());
        captured.take(b"y");
        assert!(captured.is_cut() && captured.kept.len() == CAPTURE_LEN_MAX);
    }
}
