//! `warren shim`: the process of one sandbox.

use crate::failure::{Exit, Failure};
use std::path::Path;

/// Owns the sandbox in `dir` until it has ended.
pub(crate) fn run(dir: &Path) -> Result<Exit, Failure> {
    warren_shim::main(dir).map_err(|error| {
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(next) = cause {
            text = format!("{text}: {next}");
            cause = next.source();
        }
        Failure::new(text)
    })?;
    Ok(Exit::Success)
}
