//! Orders for builds of Dockerfiles.

use std::collections::BTreeMap;
use std::path::PathBuf;
use warren_model::ImageAccess;

/// What to build. Paths are of the node's file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildOrder {
    /// The context: a gzip tar.
    pub context: PathBuf,
    /// Path of the Dockerfile in it.
    pub dockerfile: String,
    /// The Dockerfile's text, if another than that of the context is to be built.
    pub text: Option<String>,
    /// Images that it builds on. Others are fetched by the builder itself, as anybody could.
    pub bases: Vec<BuildBase>,
    /// Values for its `ARG`s.
    pub args: BTreeMap<String, String>,
    /// File that the build's output is added to, up to [`super::limits::BUILD_LOG_LEN_MAX`] in all.
    pub log: PathBuf,
    /// Where the result may lie on its way into the store; it is gone in the end.
    pub archive: PathBuf,
    /// Name that the result gets.
    pub name: String,
}

/// An image that a Dockerfile builds on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildBase {
    /// Name by which the Dockerfile calls it.
    pub name: String,
    /// Its reference on the node, pulled if need be.
    pub image: String,
    /// For whom it is pulled.
    pub access: ImageAccess,
}
