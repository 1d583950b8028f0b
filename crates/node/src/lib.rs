//! All sandboxes of one machine: admission, templates, image cache, the data plane's listener.
//!
//! The node is the authority on what runs here. Every sandbox has a folder under `sandboxes/` from before its first effect on the host
//! until after its last; a restart finds each folder and adopts or cleans up what it stands for.
#![forbid(unsafe_code)]

mod accel;
mod admit;
mod api;
pub mod assets;
mod builder;
mod checkpoint;
mod ended;
mod expiry;
mod gateway;
mod host;
mod node;
mod ready;
mod sandbox;
mod sealed;
mod shim_client;
mod snapshots;
mod spare;
mod template;

pub use accel::{AccelChoice, Verdict as AccelVerdict, cached as cached_accel};
pub use api::SharedNode;
pub use node::{Guests, Node, NodeConfig, OpenError};
