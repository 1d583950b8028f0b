//! Everything that people and scripts read: data on stdout, all else on stderr.

mod digest;
mod duration;
mod progress;
mod size;
mod table;
mod visible;

pub(crate) use digest::short_digest;
pub(crate) use duration::short_duration;
pub(crate) use progress::{Progress, Transfer};
pub(crate) use size::human_size;
pub(crate) use table::{Table, fields};
pub(crate) use visible::visible;

use crate::args::OutputFormat;
use serde::Serialize;
use std::io::{self, IsTerminal as _, Write as _};

/// An answer in the three forms it can be asked for.
pub(crate) trait View {
    /// For people; ends with a line end unless empty.
    fn table(&self) -> String;
    /// For programs.
    fn json(&self) -> serde_json::Value;
    /// Ids only, one a line.
    fn ids(&self) -> Vec<String>;
}

/// Prints in the form that was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer {
    format: OutputFormat,
    quiet: bool,
}

impl Printer {
    /// A printer for one command.
    pub(crate) fn new(format: OutputFormat, quiet: bool) -> Self {
        Self { format, quiet }
    }

    /// Prints an answer.
    pub(crate) fn show(&self, view: &dyn View) -> io::Result<()> {
        let text = match self.format {
            OutputFormat::Json => pretty(&view.json())?,
            OutputFormat::Table if self.quiet => view.ids().iter().map(|id| format!("{}\n", visible(id))).collect(),
            OutputFormat::Table => view.table(),
        };
        write_out(text.as_bytes())
    }

    /// Prints text that is the answer itself, such as a log.
    pub(crate) fn text(&self, text: &str) -> io::Result<()> {
        write_out(text.as_bytes())
    }

    /// Says something beside the answer.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet {
            say(text);
        }
    }

    /// Whether answers are JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.format == OutputFormat::Json
    }

    /// Whether moving progress may be drawn.
    pub(crate) fn draws(&self) -> bool {
        !self.quiet && io::stderr().is_terminal()
    }
}

/// Says something to people, whatever was asked for. A closed stderr is nobody's loss.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn pretty(value: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string_pretty(value).map_err(io::Error::other)? + "\n")
}

fn write_out(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}
