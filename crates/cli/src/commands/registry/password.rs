//! Reads a password where nobody sees it: never from an argument, which every process of the machine can read.

use crate::failure::Failure;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{self, BufRead as _, IsTerminal as _, Read as _, Stdin, Write as _};

/// Longest password that is read, bytes.
const PASSWORD_LEN_MAX: u64 = 16 << 10;

/// From stdin to its end, or, unless that was asked for, one line that is typed without an echo.
pub(super) fn read(from_stdin: bool, prompt: &str) -> Result<String, Failure> {
    let stdin = io::stdin();
    let failed = |error: io::Error| Failure::new(format!("cannot read the password: {error}"));
    let mut text = String::new();
    if from_stdin {
        stdin.lock().take(PASSWORD_LEN_MAX).read_to_string(&mut text).map_err(failed)?;
    } else if stdin.is_terminal() {
        // A closed stderr hides the question only.
        let _ = write!(io::stderr(), "{prompt}");
        let silence = Silence::new(&stdin).map_err(failed)?;
        let read = stdin.lock().take(PASSWORD_LEN_MAX).read_line(&mut text);
        drop(silence);
        let _ = writeln!(io::stderr());
        read.map_err(failed)?;
    } else {
        let hint =
            "give it with --password-stdin: `echo $TOKEN | warren registry add HOST --user NAME --password-stdin`";
        return Err(Failure::new("stdin is no terminal to ask for the password").hint(hint));
    }
    let password = text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    if password.is_empty() {
        return Err(Failure::new("the password is empty"));
    }
    Ok(password.to_owned())
}

/// A terminal that does not show what is typed until this goes.
struct Silence<'a> {
    terminal: &'a Stdin,
    before: Termios,
}

impl<'a> Silence<'a> {
    fn new(terminal: &'a Stdin) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(terminal, OptionalActions::Flush, &silent)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        // Nothing else can be done about a terminal that went away.
        let _ = tcsetattr(self.terminal, OptionalActions::Now, &self.before);
    }
}
