//! Registries that speak the OCI distribution protocol, version 2.
//!
//! The crate `oci-client` was weighed: it has no mirrors, gives up at 429, and its errors do not tell a refused login
//! from a missing image. What is needed of the protocol is small.

mod auth;
mod challenge;
mod client;
mod config;
mod download;
mod endpoint;
mod error;
mod http;

pub(crate) use client::{Client, Resolved};
pub use config::{Credential, RegistryConfig};
pub(crate) use error::PullError;
