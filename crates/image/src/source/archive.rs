//! Images in files: an OCI layout (directory or tar), a docker-archive, or a plain root file system tar.

use super::bag::Bag;
use super::{Layer, Package};
use crate::convert::{Marks, decompressed};
use crate::limits::{CONFIG_BYTES_MAX, LAYERS_MAX, MANIFEST_BYTES_MAX};
use crate::oci::{self, ARCHITECTURE, Config, Looked, Manifest, OciError, Search};
use crate::tar::{EntryKind, Reader, TarError};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use warren_model::reference::{BadReference, Digest};

/// Entries of a tar that are looked at to tell an image from a root file system.
const ENTRIES_LOOKED_AT: usize = 64;

/// A file or directory is not an image that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    /// Not there, no right to read it, and so on.
    #[error("{path:?} cannot be read")]
    Read {
        /// What.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// A tar that cannot be read.
    #[error(transparent)]
    Tar(#[from] TarError),
    /// A manifest or config that cannot be used.
    #[error(transparent)]
    Oci(#[from] OciError),
    /// Some content is not what its digest says.
    #[error("{expected} has the digest {found}")]
    Digest {
        /// As named.
        expected: Digest,
        /// As it is.
        found: String,
    },
    /// Something that a manifest names is not there.
    #[error("{0} is missing from the image")]
    Missing(String),
    /// A manifest or config over its limit.
    #[error("{0} is larger than any manifest or config should be")]
    TooLarge(String),
    /// None of the kinds.
    #[error("it is neither an OCI layout, nor a docker-archive, nor a root file system tar")]
    Unknown,
    /// Which image is meant is not clear.
    #[error("the archive holds {0} images; save one of them alone")]
    Several(usize),
}

impl ArchiveError {
    /// Stable code of `proto::node::ImageError`.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Read { error, .. } if error.kind() == io::ErrorKind::NotFound => "not_found",
            Self::Read { error, .. } if error.kind() == io::ErrorKind::PermissionDenied => "access_denied",
            Self::Read { error, .. } if error.kind() == io::ErrorKind::StorageFull => "no_space",
            Self::Read { .. } => "failed",
            Self::Oci(error) => error.code(),
            Self::Digest { .. } => "digest_mismatch",
            _ => "bad_content",
        }
    }
}

impl From<BadReference> for ArchiveError {
    fn from(error: BadReference) -> Self {
        Self::Missing(error.problem.to_owned())
    }
}

/// Finds out what is at `path` and opens it. `scratch` takes the unpacked form of a compressed archive.
pub(crate) fn open(path: &Path, scratch: &Path) -> Result<Package, ArchiveError> {
    let read = |error| ArchiveError::Read { path: path.to_owned(), error };
    let metadata = path.metadata().map_err(read)?;
    if metadata.is_dir() {
        return open_layout(&Bag::directory(path))?.ok_or(ArchiveError::Unknown);
    }
    // A pipe might never end, a device neither.
    if !metadata.is_file() {
        return Err(read(io::Error::other("it is neither a file nor a folder")));
    }
    if looks_like_image(File::open(path).map_err(read)?)? {
        let bag = Bag::tar(path, scratch)?;
        if let Some(package) = open_layout(&bag)? {
            return Ok(package);
        }
        if let Some(package) = open_docker_archive(&bag)? {
            return Ok(package);
        }
    }
    root_tar(path)
}

/// Whether the first names of a tar are those of an image and not of a root file system.
fn looks_like_image(file: File) -> Result<bool, ArchiveError> {
    let mut reader = Reader::new(decompressed(file).map_err(TarError::Read)?.reader);
    for looked_at in 0..ENTRIES_LOOKED_AT {
        let entry = match reader.next_entry()? {
            Some(entry) => entry,
            None if looked_at == 0 => return Err(ArchiveError::Unknown),
            None => break,
        };
        let path = entry.path.strip_prefix(b"./").unwrap_or(&entry.path);
        let first = path.split(|b| *b == b'/').next().unwrap_or_default();
        let stem = first.split(|b| *b == b'.').next().unwrap_or_default();
        let hex = |s: &[u8]| s.len() == 64 && s.iter().all(u8::is_ascii_hexdigit);
        if matches!(first, b"oci-layout" | b"index.json" | b"manifest.json" | b"repositories" | b"blobs") || hex(stem) {
            return Ok(true);
        }
        if entry.kind != EntryKind::Dir {
            break;
        }
    }
    Ok(false)
}

fn root_tar(path: &Path) -> Result<Package, ArchiveError> {
    let error = |error| ArchiveError::Read { path: path.to_owned(), error };
    let file = File::open(path).map_err(error)?;
    let bytes = file.metadata().map_err(error)?.len();
    let open: super::OpenLayer = Box::new(move || Ok(Box::new(file)));
    let config = Config { architecture: ARCHITECTURE.to_owned(), ..Config::default() };
    let layers = vec![Layer { blob: None, diff_id: None, open }];
    Ok(Package { digest: None, config, layers, marks: Marks::Literal, bytes })
}

/// `None` if it is not an OCI layout.
fn open_layout(bag: &Bag) -> Result<Option<Package>, ArchiveError> {
    let Some(mut document) = bag.read("index.json", MANIFEST_BYTES_MAX)? else { return Ok(None) };
    if bag.read("oci-layout", MANIFEST_BYTES_MAX)?.is_none() {
        return Ok(None);
    }
    let mut digest = None;
    let mut search = Search::default();
    loop {
        match search.look(&document)? {
            Looked::Next(entry) => {
                document = checked(bag, &entry.digest, MANIFEST_BYTES_MAX)?;
                digest = Some(entry.digest);
            }
            Looked::Manifest(manifest) => {
                let digest = digest.unwrap_or(hash(&document)?);
                return from_manifest(bag, manifest, digest).map(Some);
            }
        }
    }
}

fn from_manifest(bag: &Bag, manifest: Manifest, digest: Digest) -> Result<Package, ArchiveError> {
    let config = oci::parse_config(&checked(bag, &manifest.config.digest, CONFIG_BYTES_MAX)?)?;
    let bytes = manifest.layers.iter().map(|l| l.size).fold(0, u64::saturating_add);
    let layers = pair(manifest.layers, &config)?
        .into_iter()
        .map(|(blob, diff_id)| {
            let name = blob_name(&blob.digest);
            let (_, open) = bag.open(&name)?.ok_or(ArchiveError::Missing(name))?;
            Ok(Layer { blob: Some(blob), diff_id: Some(diff_id), open })
        })
        .collect::<Result<_, ArchiveError>>()?;
    Ok(Package { digest: Some(digest), config, layers, marks: Marks::Whiteouts, bytes })
}

/// Each layer with the digest of its uncompressed form.
pub(crate) fn pair<T>(layers: Vec<T>, config: &Config) -> Result<Vec<(T, Digest)>, OciError> {
    if layers.len() != config.diff_ids.len() || layers.len() > LAYERS_MAX {
        return Err(OciError::BadLayers(layers.len()));
    }
    Ok(layers.into_iter().zip(config.diff_ids.iter().cloned()).collect())
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SavedImage {
    config: String,
    layers: Vec<String>,
}

/// `None` if it is not a docker-archive.
fn open_docker_archive(bag: &Bag) -> Result<Option<Package>, ArchiveError> {
    let Some(manifest) = bag.read("manifest.json", MANIFEST_BYTES_MAX)? else { return Ok(None) };
    let mut images: Vec<SavedImage> = serde_json::from_slice(&manifest)
        .map_err(|e| OciError::BadJson { what: "manifest.json", problem: e.to_string() })?;
    let image = match images.len() {
        1 => images.remove(0),
        n => return Err(ArchiveError::Several(n)),
    };
    let config_bytes = bag.read(&image.config, CONFIG_BYTES_MAX)?.ok_or(ArchiveError::Missing(image.config))?;
    let config = oci::parse_config(&config_bytes)?;
    let mut bytes = 0u64;
    let layers = pair(image.layers, &config)?
        .into_iter()
        .map(|(name, diff_id)| {
            let (size, open) = bag.open(&name)?.ok_or(ArchiveError::Missing(name))?;
            bytes = bytes.saturating_add(size);
            Ok(Layer { blob: None, diff_id: Some(diff_id), open })
        })
        .collect::<Result<_, ArchiveError>>()?;
    // The config names every layer, so its digest names the image: it is the image id that Docker shows.
    Ok(Some(Package { digest: Some(hash(&config_bytes)?), config, layers, marks: Marks::Whiteouts, bytes }))
}

fn checked(bag: &Bag, digest: &Digest, max: u64) -> Result<Vec<u8>, ArchiveError> {
    let name = blob_name(digest);
    let bytes = bag.read(&name, max)?.ok_or(ArchiveError::Missing(name))?;
    let found = hash(&bytes)?;
    if found == *digest {
        Ok(bytes)
    } else {
        Err(ArchiveError::Digest { expected: digest.clone(), found: found.to_string() })
    }
}

fn blob_name(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// Digest of bytes in memory.
pub(crate) fn hash(bytes: &[u8]) -> Result<Digest, BadReference> {
    let hex: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
    Digest::parse(&format!("sha256:{hex}"))
}
