//! Registries that speak the OCI distribution protocol, version 2.
//!
//! The crate `oci-client` was weighed: it has no mirrors, gives up at 429, and its errors do not tell a refused login
//! from a missing image. What is needed of the protocol is small.

mod auth;
mod backoff;
mod blobs;
mod challenge;
mod client;
mod config;
mod documents;
mod download;
mod endpoint;
mod errand;
mod error;
mod http;

pub(crate) use blobs::Blobs;
pub(crate) use client::{Client, Meaning, Resolved};
pub use config::RegistryConfig;
pub(crate) use errand::Errand;
pub(crate) use error::PullError;
