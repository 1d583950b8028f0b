//! The agent as a process of this host, spoken to over a unix socket as a shim does.
//!
//! What needs a machine of its own (`init`, the virtio port, kills for lack of memory) is tested with real VMs in `tests/`
//! at the top of the repository.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod client;
mod commands;
mod deadlines;
mod files;
mod limits;
mod sessions;
mod streams;
