//! Every byte that crosses a process: the public API, control, node and edge, shim, guest; with their limits.
//!
//! Wire types live here and nowhere else. `TryFrom` into `warren-model` is where input is validated.
#![forbid(unsafe_code)]

pub mod edge;
pub mod guest;
pub mod http;
pub mod nbd;
pub mod node;
pub mod shim;
