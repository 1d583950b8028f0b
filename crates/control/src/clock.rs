//! The wall clock, read in one place.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970; 0 if the machine's clock is before that.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
