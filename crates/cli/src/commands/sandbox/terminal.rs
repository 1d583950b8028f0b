use rustix::termios::{self, OptionalActions, Termios};
use std::io::{self, stdin};
use warren_proto::guest::command_session::PtySize;

/// The terminal passes every key on unread until this is dropped.
pub(super) struct RawMode {
    before: Termios,
}

impl RawMode {
    /// Takes the terminal of stdin over.
    pub(super) fn enter() -> io::Result<Self> {
        let before = termios::tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(stdin(), OptionalActions::Flush, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // Nothing could be done about a terminal that went away.
        let _ = termios::tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

/// Size of the terminal of stdin; what is unknown is the size of old.
pub(super) fn size() -> PtySize {
    match termios::tcgetwinsize(stdin()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            PtySize { cols: size.ws_col.into(), rows: size.ws_row.into() }
        }
        _ => PtySize { cols: 80, rows: 24 },
    }
}
