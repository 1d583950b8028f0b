//! How a command fails: what happened, to which object, what to do next, and the exit code.

use crate::printer::visible;
use std::process::ExitCode;

/// The exit codes of the binary itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It was done.
    Success,
    /// It was refused or failed.
    Failure,
    /// `sandbox run --timeout`: the time was over, as `timeout(1)` says it.
    TimedOut,
    /// `sandbox run` and `shell`: the failure was not the command's own, as `docker run` says it.
    NotTheCommand,
    /// The command's own exit code, 128+n after signal n.
    Command(u8),
}

impl Exit {
    /// The number for the operating system.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Success => 0,
            Exit::Failure => 1,
            Exit::TimedOut => 124,
            Exit::NotTheCommand => 125,
            Exit::Command(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// What a command says when it did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    message: String,
    hints: Vec<String>,
    exit: Exit,
}

impl Failure {
    /// A failure with exit code 1.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hints: Vec::new(), exit: Exit::Failure }
    }

    /// Adds what to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Changes the exit code.
    pub(crate) fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Says which object it happened to, unless the message does already.
    pub(crate) fn about(mut self, object: &str) -> Self {
        if !self.message.contains(object) {
            self.message = format!("{object}: {}", self.message);
        }
        self
    }

    /// The exit code.
    pub(crate) fn exit_code(&self) -> Exit {
        self.exit
    }

    /// The lines for stderr. Texts may come from a guest or a server, so control characters are made visible.
    pub(crate) fn lines(&self) -> Vec<String> {
        let texts = std::iter::once(("error", &self.message)).chain(self.hints.iter().map(|hint| ("hint", hint)));
        texts.flat_map(|(kind, text)| lines_of(kind, text)).collect()
    }
}

/// `kind: first line`, and the others below it, indented.
fn lines_of(kind: &str, text: &str) -> Vec<String> {
    let mut lines = text.lines().map(visible);
    let first = format!("{kind}: {}", lines.next().unwrap_or_default());
    std::iter::once(first).chain(lines.map(|line| format!("  {line}"))).collect()
}

impl From<std::io::Error> for Failure {
    /// For writes to stdout; other errors carry their object.
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            // `warren ... | head` ends the reader first; that is no failure of ours.
            std::io::ErrorKind::BrokenPipe => Failure::new("stdout was closed").exit(Exit::Success),
            _ => Failure::new(format!("cannot write to stdout: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_its_object_and_the_next_step() {
        let failure = Failure::new("no such sandbox").about("s1").hint("see `warren sandbox list`");
        let failure = failure.about("s1");
        assert_eq!(failure.lines(), ["error: s1: no such sandbox", "hint: see `warren sandbox list`"]);
    }

    #[test]
    fn texts_of_a_guest_cannot_steer_the_terminal() {
        assert_eq!(Failure::new("a\x1b[2Jb\nc").lines(), ["error: a\\u{1b}[2Jb", "  c"]);
    }
}
