//! One sandbox: the process that owns its VMM, its network and its guest channel, and serves one unix socket.
//!
//! A shim outlives the node process that started it. It never outlives its sandbox: whatever ends the machine, the shim kills what is
//! left of it, writes `end.json` and exits.
#![deny(unsafe_code)]

mod api;
mod body;
pub mod channel;
mod console;
mod driver;
mod exchange;
pub mod guest;
pub mod jail;
mod layer;
mod machine;
mod network;
mod snapshot;
mod start;
mod sys;
mod transfer;

pub use body::{AnyBody, Piped};
pub use console::Console;
pub use jail::Jail;
use std::path::Path;

/// The shim's socket in its sandbox's folder.
pub const SHIM_SOCKET: &str = "shim.sock";
/// The shim's log in its sandbox's folder.
pub const LOG_FILE: &str = "shim.log";
/// The folder in the sandbox's folder that the shim and its VMM work in. What is in it may be the work of a VMM that a guest has
/// taken over: the node follows no link there, and trusts nothing that it reads.
pub const VM_DIR: &str = "vm";
/// How it ended, in the VM's folder, written by the shim as its last act: [`warren_proto::shim::End`] as JSON.
pub const END_FILE: &str = "end.json";
/// The sandbox's disk in the VM's folder, made by the node before it asks for a boot.
pub const DISK_FILE: &str = "disk.qcow2";

/// The overlay of a volume's disk in the VM's folder, made by the node like [`DISK_FILE`].
pub fn volume_file(disk: &str) -> String {
    format!("{disk}.qcow2")
}

/// Why a shim could not do its work.
#[derive(Debug, thiserror::Error)]
#[error("{action} in {dir}")]
pub struct ShimError {
    action: &'static str,
    dir: String,
    #[source]
    source: std::io::Error,
}

/// Runs the shim of the sandbox whose VM's folder is `dir` until the sandbox has ended, in a jail if it was given one. Blocks.
///
/// One thread: the VMM is bound to the life of the thread that spawned it.
pub fn main(dir: &Path, jail: Option<&Jail>) -> Result<(), ShimError> {
    let failed = |action| {
        let dir = dir.display().to_string();
        move |source| ShimError { action, dir, source }
    };
    // Standard error is the sandbox's log file.
    let _ = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).try_init();
    if let Some(jail) = jail {
        jail::enter(dir, jail).map_err(failed("lock the shim in"))?;
    }
    // An escaped VMM of the same user must not look into this process.
    let undumpable = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    undumpable.map_err(|error| failed("hide the shim's memory")(error.into()))?;
    // Sockets are named relative to here, so that the depth of the data directory does not matter.
    std::env::set_current_dir(dir).map_err(failed("change folder"))?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed("start a runtime"))?;
    runtime.block_on(driver::run()).map_err(failed("serve a sandbox"))
}

/// An error with all its causes, for people.
fn full(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
