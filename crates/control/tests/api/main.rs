//! The public API as a client sees it, over a node without machines.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod access;
mod accounts;
mod batches;
mod checkpoints;
mod creating;
mod deleting;
mod ends;
mod image_bases;
mod image_rules;
mod images;
mod lists;
mod login;
mod network;
mod owned_images;
mod recovery;
mod refusals;
mod registries;
mod server;
mod snapshots;
mod volumes;
mod wire;
