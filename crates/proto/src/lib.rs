//! Every byte that crosses a process: the public API, control and node, shim, guest; with their limits.
//!
//! Wire types live here and nowhere else. `TryFrom` into `warren-model` is where input is validated.
#![forbid(unsafe_code)]

pub mod guest;
pub mod http;
pub mod nbd;
pub mod node;
pub mod shim;
