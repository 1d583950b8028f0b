//! Reference to verified layers to ext4 in a content-addressed store; leases, garbage collection.
#![forbid(unsafe_code)]

pub mod convert;
pub mod ext4;
pub mod limits;
pub mod tar;
