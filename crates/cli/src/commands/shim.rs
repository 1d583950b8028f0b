//! `warren shim`: the process of one sandbox.

use crate::args::ShimArgs;
use crate::failure::{Exit, Failure};
use warren_shim::Jail;

/// Owns a sandbox until it has ended.
pub(crate) fn run(args: ShimArgs) -> Result<Exit, Failure> {
    let jail = args.uid.map(|uid| Jail { uid, readable: args.readable });
    warren_shim::main(&args.dir, jail.as_ref()).map_err(|error| {
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
