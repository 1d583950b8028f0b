use crate::args::LogFormat;
use crate::{env_vars, places};
use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;

/// What is logged if nobody says otherwise.
const FILTER_DEFAULT: &str = "info";

/// Sends the log to stderr.
pub(super) fn start(format: LogFormat) {
    let asked = places::process_env(env_vars::WARREN_LOG);
    let filter = EnvFilter::try_new(asked.as_deref().unwrap_or(FILTER_DEFAULT));
    let filter = filter.unwrap_or_else(|_| EnvFilter::new(FILTER_DEFAULT));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).init(),
        LogFormat::Json => builder.json().init(),
    }
}
