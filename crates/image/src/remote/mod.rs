//! An object store that images are kept in beside this node: a directory, S3, or a web server that takes PUT.
//!
//! ```text
//! images/<hex>   an artifact: the record of an image and the places of its chunks; named by the image's digest
//! packs/<hex>    chunks one after the other, each compressed if that makes it smaller; named by the hash of all
//! ```
//! Nothing that was written is ever changed, so whatever a kill leaves is sound: at worst a pack that no artifact names.

mod arrival;
mod artifact;
mod upload;

pub use arrival::{Arrival, ArriveError};
pub(crate) use artifact::{Artifact, PackId, Place};
pub(crate) use upload::upload;

use artifact::ARTIFACT_LEN_MAX;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use url::Url;
use warren_model::reference::Digest;

/// Longest wait for the beginning of an artifact: a registry may have the image as well.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(5);

/// Why an object store did not do what it should.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RemoteError {
    /// It failed, or cannot be reached.
    #[error(transparent)]
    Store(#[from] object_store::Error),
    /// It said nothing for a while.
    #[error("it did not answer within {ANSWER_WAIT_MAX:?}")]
    Silent,
    /// What it gave is damaged.
    #[error("{0} is damaged")]
    Damaged(Path),
}

/// An object store. A clone is another handle.
#[derive(Debug, Clone)]
pub(crate) struct Remote {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
}

impl Remote {
    /// The store at `url`: `file:///folder`, `s3://bucket/prefix` (with the usual `AWS_*` variables), `http(s)://host/prefix`.
    pub(crate) fn open(url: &str) -> Result<Self, String> {
        let url = Url::parse(url).map_err(|error| error.to_string())?;
        // Whoever installed one before is right, too.
        let _ = rustls::crypto::ring::default_provider().install_default();
        if url.scheme() == "file" {
            let folder = url.to_file_path().map_err(|()| "the URL names no folder of this machine".to_owned())?;
            std::fs::create_dir_all(&folder).map_err(|error| format!("make {}: {error}", folder.display()))?;
        }
        let environment = std::env::vars().filter(|(name, _)| name.starts_with("AWS_"));
        let options = environment.chain([("allow_http".to_owned(), "true".to_owned())]);
        let (store, prefix) = object_store::parse_url_opts(&url, options).map_err(|error| error.to_string())?;
        Ok(Self { store: store.into(), prefix })
    }

    /// The artifact of an image; `None` if it is not there.
    pub(crate) async fn artifact(&self, digest: &Digest) -> Result<Option<Artifact>, RemoteError> {
        let path = self.image_path(digest);
        let answer = match timeout(ANSWER_WAIT_MAX, self.store.get(&path)).await.map_err(|_| RemoteError::Silent)? {
            Ok(answer) if answer.meta.size <= ARTIFACT_LEN_MAX => answer,
            Ok(_) => return Err(RemoteError::Damaged(path)),
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let artifact = Artifact::decode(&answer.bytes().await?).ok_or(RemoteError::Damaged(path.clone()))?;
        if artifact.record.digest == digest.as_str() { Ok(Some(artifact)) } else { Err(RemoteError::Damaged(path)) }
    }

    async fn put_artifact(&self, digest: &Digest, bytes: Vec<u8>) -> Result<(), RemoteError> {
        self.store.put(&self.image_path(digest), bytes.into()).await?;
        Ok(())
    }

    async fn put_pack(&self, id: PackId, bytes: Vec<u8>) -> Result<(), RemoteError> {
        self.store.put(&self.pack_path(id), bytes.into()).await?;
        Ok(())
    }

    async fn pack_range(&self, id: PackId, range: Range<u32>) -> Result<Bytes, RemoteError> {
        let path = self.pack_path(id);
        let wanted = (range.end - range.start) as usize;
        let bytes = self.store.get_range(&path, u64::from(range.start)..u64::from(range.end)).await?;
        if bytes.len() == wanted { Ok(bytes) } else { Err(RemoteError::Damaged(path)) }
    }

    fn image_path(&self, digest: &Digest) -> Path {
        self.prefix.clone().join("images").join(digest.hex())
    }

    fn pack_path(&self, id: PackId) -> Path {
        let hex: String = id.0.iter().map(|b| format!("{b:02x}")).collect();
        self.prefix.clone().join("packs").join(hex)
    }
}
