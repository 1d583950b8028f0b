//! Processes of the guest: their ends, their cgroups, the kernel's kills for lack of memory.

mod cgroup;
mod freezer;
mod oom;
mod reaper;

pub use cgroup::{Cgroups, CommandCgroup};
pub use freezer::Freezer;
pub use oom::OomWatch;
pub use reaper::{Exit, Reaper};
