//! Calls to the kernel that have no safe wrapper: the only place of this crate with `unsafe`.

mod allocator;
mod devices;
mod freeze;
mod identity;
mod interface;
mod priority;
mod signals;
mod spawn;
mod watch;
mod world;

pub use allocator::{give_memory_back, tame_allocator};
pub use devices::{add_entropy, grow_ext4};
pub use freeze::{freeze, thaw};
pub use identity::assume_file_identity;
pub use interface::InterfaceSocket;
pub use priority::take_precedence;
pub use signals::{child_signals, send};
pub use spawn::{Launch, SpawnFailure, SpawnStep, spawn};
pub use watch::watch;
pub use world::{FirstProcess, World};
