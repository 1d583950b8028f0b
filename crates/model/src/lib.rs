//! Values that every part of Warren agrees on: ids, the sandbox spec, the lifecycle, egress rules, image references.
//!
//! Nothing here does IO, reads a clock, draws a random number or is async.
#![forbid(unsafe_code)]

mod access;
mod checkpoint;
pub mod egress;
mod id;
mod lifecycle;
pub mod reference;
mod spec;
mod volume;

pub use access::{ImageAccess, Login};
pub use checkpoint::{BadCheckpointId, CheckpointId};
pub use id::{BadId, SandboxId, SnapshotId};
pub use lifecycle::{EndReason, ErrorType, Status};
pub use spec::{BadSpec, SandboxSpec, Shape, StartCommand, limits};
pub use volume::{BadMountPath, BadVolumeName, MountPath, VolumeMount, VolumeName};
