//! Warren-guest: first process in the VM. Mounts, reaps, runs commands, moves files.
//!
//! One thread, one tokio runtime of that thread, no locks: shared state is behind `Rc` in [`agent::Agent`]. The path of a command:
//! [`channel`] (bytes of the virtio port) → [`serve`] (HTTP/2) → [`connect`] (the Connect service) → [`command`] (what to
//! start) → [`sys`] (start it) → [`session`] (its output and its end back to the streams that show it).
#![deny(unsafe_code)]

pub mod agent;
pub mod boot;
pub mod channel;
pub mod command;
pub mod connect;
mod console;
pub mod files;
pub mod freeze;
mod generation;
pub mod http;
pub mod init;
pub mod jobs;
pub mod modprobe;
pub mod process;
pub mod serve;
pub mod session;
pub mod shutdown;
pub mod standalone;
pub mod start_command;
pub mod status;
pub mod sys;
