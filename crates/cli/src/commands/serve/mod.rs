//! stub
use crate::args::ServeArgs;
use crate::failure::{Exit, Failure};
pub(crate) fn run(_args: ServeArgs) -> Result<Exit, Failure> {
    Err(Failure::new("not wired yet"))
}
