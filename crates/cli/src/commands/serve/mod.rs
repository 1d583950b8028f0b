//! stub
mod connections;
mod error;
mod lock;
mod logging;
mod open_files;
mod tls;
use crate::args::ServeArgs;
use crate::failure::{Exit, Failure};
pub(crate) fn run(args: ServeArgs) -> Result<Exit, Failure> {
    logging::start(args.log_format);
    open_files::raise();
    let _ = lock::DataDirLock::take(std::path::Path::new("/nonexistent"));
    let _ = tls::acceptor(None, None)?;
    let _ = (error::ServeError::System { action: "", source: std::io::Error::other("") }, args.accel, args.advertise);
    let _ = error::ServeError::Listen { address: args.listen, source: std::io::Error::other("") };
    Err(Failure::new("not wired yet"))
}
