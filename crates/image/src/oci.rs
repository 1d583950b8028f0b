//! Manifests, indexes and configs as registries and archives have them. Parsed from hostile bytes; only what is used.

use crate::limits::{INDEX_DEPTH_MAX, INDEX_ENTRIES_LOOKED_AT_MAX};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use warren_model::reference::Digest;

/// Media types that a manifest request accepts, best first.
pub const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";
/// The architecture that guests have, as images spell it.
pub const ARCHITECTURE: &str = "amd64";
const OS: &str = "linux";

/// A manifest or config cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OciError {
    /// Not the JSON it should be.
    #[error("the {what} is not valid: {problem}")]
    BadJson {
        /// Manifest, index or config.
        what: &'static str,
        /// What the parser says.
        problem: String,
    },
    /// An old or foreign kind of manifest.
    #[error("{0} is not supported; push the image again with a current tool")]
    Unsupported(String),
    /// More layers than allowed, or another number than the config says.
    #[error("the image has {0} layers, which does not fit its config or the limit")]
    BadLayers(usize),
    /// No part for this machine.
    #[error("the image is for {0}; {OS}/{ARCHITECTURE} is needed")]
    WrongArchitecture(String),
    /// Indexes within indexes without end.
    #[error("the image is an index of indexes, nested deeper than {INDEX_DEPTH_MAX}")]
    TooDeep,
}

impl OciError {
    /// Stable code of `proto::node::ImageError`.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::WrongArchitecture(_) => "wrong_architecture",
            Self::TooDeep => "index_too_deep",
            Self::BadJson { .. } | Self::Unsupported(_) | Self::BadLayers(_) => "bad_content",
        }
    }
}

/// A pointer to content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// What it must hash to.
    pub digest: Digest,
    /// Length, bytes.
    pub size: u64,
}

/// A manifest for one platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The image config.
    pub config: Descriptor,
    /// Layers, lowest first.
    pub layers: Vec<Descriptor>,
}

/// What a document of a [`Search`] leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Looked {
    /// The manifest that is sought.
    Manifest(Manifest),
    /// The document to look at next.
    Next(Descriptor),
}

/// Goes from a manifest or index through the indexes within it to the manifest for this machine.
#[derive(Debug, Default)]
pub struct Search {
    /// Documents to look at, with their depth; the best is last.
    open: Vec<(Descriptor, usize)>,
    depth: usize,
    looked_at: usize,
    /// Platforms that were met and do not fit.
    others: BTreeSet<String>,
    too_deep: bool,
}

/// What is used of an image config.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// `amd64` or another.
    pub architecture: String,
    /// `ENV`; an entry without `=` has an empty value.
    pub env: BTreeMap<String, String>,
    /// `USER`.
    pub user: Option<String>,
    /// `WORKDIR`.
    pub workdir: Option<String>,
    /// `ENTRYPOINT`.
    pub entrypoint: Vec<String>,
    /// `CMD`.
    pub cmd: Vec<String>,
    /// `SHELL`.
    pub shell: Vec<String>,
    /// `ONBUILD`.
    pub on_build: Vec<String>,
    /// Digest of each layer's uncompressed tar, lowest first.
    pub diff_ids: Vec<Digest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDocument {
    schema_version: Option<u32>,
    media_type: Option<String>,
    config: Option<RawDescriptor>,
    layers: Option<Vec<RawDescriptor>>,
    manifests: Option<Vec<RawDescriptor>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDescriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    platform: Option<RawPlatform>,
}

#[derive(Deserialize)]
struct RawPlatform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

#[derive(Deserialize)]
struct RawConfig {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    config: Option<RawRunConfig>,
    rootfs: Option<RawRootfs>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
struct RawRunConfig {
    env: Option<Vec<String>>,
    user: Option<String>,
    working_dir: Option<String>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    shell: Option<Vec<String>>,
    on_build: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct RawRootfs {
    #[serde(default)]
    diff_ids: Vec<String>,
}

impl Search {
    /// Looks at a document: the first, or the one that was asked for last.
    pub fn look(&mut self, bytes: &[u8]) -> Result<Looked, OciError> {
        let raw: RawDocument = serde_json::from_slice(bytes).map_err(|e| bad_json("manifest", e))?;
        self.looked_at += 1;
        match raw.manifests {
            Some(entries) => self.open_index(entries)?,
            None => return manifest(raw).map(Looked::Manifest),
        }
        if self.looked_at >= INDEX_ENTRIES_LOOKED_AT_MAX {
            return Err(OciError::TooDeep);
        }
        match self.open.pop() {
            Some((next, depth)) => {
                self.depth = depth;
                Ok(Looked::Next(next))
            }
            None if self.too_deep => Err(OciError::TooDeep),
            None if self.others.is_empty() => Err(OciError::WrongArchitecture("nothing".to_owned())),
            None => {
                let others: Vec<_> = self.others.iter().map(String::as_str).collect();
                Err(OciError::WrongArchitecture(others.join(", ")))
            }
        }
    }

    /// Puts what an index offers in line.
    fn open_index(&mut self, entries: Vec<RawDescriptor>) -> Result<(), OciError> {
        let depth = self.depth + 1;
        let (mut nested, mut unnamed, mut fits, mut foreign) = (Vec::new(), Vec::new(), None, false);
        for entry in entries {
            match &entry.platform {
                Some(p) if p.os == OS && p.architecture == ARCHITECTURE => fits = fits.or(Some(entry)),
                // Attestations stand beside the images that they speak of.
                Some(p) if p.os == "unknown" => {}
                Some(p) if !p.os.is_empty() => {
                    foreign = true;
                    self.others.insert(format!("{}/{}", p.os, p.architecture));
                }
                _ if is_index(&entry.media_type) => nested.push(entry),
                _ => unnamed.push(entry),
            }
        }
        let next = match (fits, unnamed.len()) {
            (Some(fits), _) => vec![fits],
            // Layouts of one image often name no platform; its config will tell.
            (None, 1) if !foreign && nested.is_empty() => unnamed,
            (None, n) if n > 0 && nested.is_empty() && !foreign => {
                return Err(OciError::Unsupported(format!("an index of {n} images without platforms")));
            }
            (None, _) => nested,
        };
        if depth > INDEX_DEPTH_MAX {
            self.too_deep |= !next.is_empty();
            return Ok(());
        }
        for entry in next.into_iter().rev() {
            self.open.push((descriptor(entry)?, depth));
        }
        Ok(())
    }
}

fn manifest(raw: RawDocument) -> Result<Manifest, OciError> {
    let (Some(config), Some(layers)) = (raw.config, raw.layers) else {
        let kind = match raw.schema_version {
            Some(1) => "a manifest of schema 1".to_owned(),
            _ => format!("a manifest of type {:?}", raw.media_type.unwrap_or_default()),
        };
        return Err(OciError::Unsupported(kind));
    };
    if layers.len() > crate::limits::LAYERS_MAX {
        return Err(OciError::BadLayers(layers.len()));
    }
    if let Some(foreign) = layers.iter().find(|l| !is_layer(&l.media_type)) {
        return Err(OciError::Unsupported(format!("a layer of type {:?}", foreign.media_type)));
    }
    let layers = layers.into_iter().map(descriptor).collect::<Result<_, _>>()?;
    Ok(Manifest { config: descriptor(config)?, layers })
}

/// Parses an image config and checks that it is for this machine.
pub fn parse_config(bytes: &[u8]) -> Result<Config, OciError> {
    let raw: RawConfig = serde_json::from_slice(bytes).map_err(|e| bad_json("config", e))?;
    if raw.architecture.is_empty() && raw.rootfs.is_none() {
        return Err(OciError::Unsupported("an artifact that is no container image".to_owned()));
    }
    let fits = raw.architecture == ARCHITECTURE && (raw.os == OS || raw.os.is_empty());
    if !fits {
        return Err(OciError::WrongArchitecture(format!("{}/{}", raw.os, raw.architecture)));
    }
    let run = raw.config.unwrap_or_default();
    let env = run.env.unwrap_or_default();
    let env = env.iter().map(|e| e.split_once('=').unwrap_or((e, "")));
    let diff_ids = raw.rootfs.map(|r| r.diff_ids).unwrap_or_default();
    Ok(Config {
        architecture: raw.architecture,
        env: env.map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        user: run.user.filter(|u| !u.is_empty()),
        workdir: run.working_dir.filter(|w| !w.is_empty()),
        entrypoint: run.entrypoint.unwrap_or_default(),
        cmd: run.cmd.unwrap_or_default(),
        shell: run.shell.unwrap_or_default(),
        on_build: run.on_build.unwrap_or_default(),
        diff_ids: diff_ids.iter().map(|d| digest(d)).collect::<Result<_, _>>()?,
    })
}

fn is_index(media_type: &str) -> bool {
    media_type.contains(".image.index.") || media_type.contains(".manifest.list.")
}

fn is_layer(media_type: &str) -> bool {
    media_type.is_empty() || media_type.contains(".layer.") || media_type.contains(".rootfs.")
}

fn descriptor(raw: RawDescriptor) -> Result<Descriptor, OciError> {
    Ok(Descriptor { digest: digest(&raw.digest)?, size: raw.size })
}

fn digest(text: &str) -> Result<Digest, OciError> {
    Digest::parse(text).map_err(|e| OciError::BadJson { what: "manifest", problem: e.problem.to_owned() })
}

fn bad_json(what: &'static str, error: serde_json::Error) -> OciError {
    OciError::BadJson { what, problem: error.to_string() }
}

#[cfg(test)]
#[path = "oci_tests.rs"]
mod tests;
