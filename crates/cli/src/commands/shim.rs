//! stub
use crate::failure::{Exit, Failure};
pub(crate) fn run(_dir: &std::path::Path) -> Result<Exit, Failure> {
    Err(Failure::new("not wired yet"))
}
