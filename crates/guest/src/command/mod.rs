//! From what was asked to a running process: user, environment, program, streams.

mod account;
mod environ;
mod launch;
mod program;
mod script;

pub use account::{Account, BadUser};
pub(crate) use launch::resize_terminal;
pub use launch::{Launched, StartError, Streams, launch, resolve_user};
pub use program::STAND_IN_DIR;

use std::collections::BTreeMap;
use warren_proto::guest::command_session::PtySize;

/// Longest argument or environment string that the kernel takes, bytes without its NUL.
pub const STRING_LEN_MAX: usize = (128 << 10) - 1;

/// What every command of this sandbox starts from.
#[derive(Debug, Clone, Default)]
pub struct Defaults {
    /// The image's environment, the sandbox's, its secrets.
    pub env: BTreeMap<String, String>,
    /// Working directory of commands that name none.
    pub workdir: String,
    /// User of commands that name none, as in an image's `USER`; `None` is root.
    pub user: Option<String>,
    /// Host name.
    pub hostname: String,
    /// Whether the image lacks some of the tools that clients rely on, so that the stand-ins go at the end of `PATH`.
    pub stand_ins: bool,
}

/// A command to start.
#[derive(Debug, Clone, Copy)]
pub struct Command<'a> {
    /// Program: a path, or a name that is looked up in `PATH`.
    pub program: &'a str,
    /// Arguments after the program's name.
    pub args: &'a [String],
    /// Wins over [`Defaults::env`].
    pub env: &'a BTreeMap<String, String>,
    /// Working directory.
    pub cwd: Option<&'a str>,
    /// User.
    pub user: Option<&'a str>,
    /// What its streams are.
    pub wiring: Wiring,
}

/// What the streams of a command are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wiring {
    /// Pipes; input is a pipe or at its end from the start.
    Pipes {
        /// Whether input is a pipe.
        stdin: bool,
    },
    /// One pipe for both outputs, no input.
    Log,
    /// A terminal of this size.
    Terminal(PtySize),
}
