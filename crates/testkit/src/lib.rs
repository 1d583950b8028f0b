//! Test doubles: fake QMP peer, fake guest, simulated shims, registry.
pub mod node;
