//! Reference to verified layers to ext4 in a content-addressed store; leases, garbage collection.
//!
//! [`Store`] is what a node uses. [`ext4`] also makes file systems of one's own, such as the guests' tools disk.
#![forbid(unsafe_code)]

mod chunks;
pub mod convert;
pub mod ext4;
pub mod limits;
pub mod oci;
mod progress;
pub mod qcow2;
mod registry;
mod remote;
mod scratch;
mod source;
mod store;
pub mod tar;

pub use chunks::Disk;
pub use registry::RegistryConfig;
pub use remote::{Arrival, ArriveError};
pub use store::{Ask, Config, Image, Layered, Lease, Store, StoreError};
