//! `warren doctor`: what this machine can do, what is missing, how to fix it.

mod checks;
mod facts;
mod probe;
mod report;

use crate::failure::{Exit, Failure};
use crate::places;
use crate::printer::Printer;
use checks::Status;
use report::Report;
use std::path::PathBuf;

/// Looks at this machine and says what it found. Fails if something is missing that the server needs.
pub(crate) fn run(data_dir: Option<PathBuf>, printer: &Printer) -> Result<Exit, Failure> {
    let data_dir = places::data_dir(data_dir, &places::process_env, places::is_root());
    let report = Report { checks: checks::evaluate(&probe::facts(&data_dir)) };
    printer.show(&report)?;
    Ok(if report.worst() == Status::Fail { Exit::Failure } else { Exit::Success })
}
