//! Test doubles: fake QMP peer, fake guest, simulated shims, registry.
#![forbid(unsafe_code)]

pub mod node;
pub mod registry;
pub mod shim;
