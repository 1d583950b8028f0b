//! The agent's log: lines on the console, for the host's `console.log`. Used for faults only; a serial line is slow.

/// Writes one line on the console.
#[macro_export]
macro_rules! report {
    ($($arg:tt)*) => { eprintln!("warren-guest: {}", format_args!($($arg)*)) };
}
