//! `warren completions`: a script for the shell on stdout.

use crate::args::Cli;
use crate::failure::{Exit, Failure};
use clap::CommandFactory as _;
use std::io::Write as _;

/// Prints the script.
pub(crate) fn run(shell: clap_complete::Shell) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "warren", &mut script);
    std::io::stdout().lock().write_all(&script)?;
    Ok(Exit::Success)
}
