//! Layers come in, several at a time, each into a file of its own; checked before anybody reads it.

use super::blobs::Pinned;
use super::client::Client;
use super::endpoint::Endpoint;
use super::errand::Errand;
use super::error::PullError;
use crate::oci::Descriptor;
use crate::progress::{Step, Wait};
use crate::scratch::Scratch;
use crate::source::OpenLayer;
use reqwest::header::RANGE;
use reqwest::{Response, StatusCode};
use sha2::{Digest as _, Sha256};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncSeekExt, AsyncWriteExt, BufWriter};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

/// Layers of one image that are fetched at the same time.
const AT_ONCE_MAX: usize = 4;
/// Times that a broken transfer is taken up again.
const RESUMES_MAX: u32 = 4;
/// Shortest and longest time that a layer may take to come.
const FETCH_MIN: Duration = Duration::from_secs(600);
const FETCH_MAX: Duration = Duration::from_secs(6 * 3600);
/// Beyond the shortest time, a layer must come as fast as this.
const FETCH_BYTES_PER_SEC_MIN: u64 = 64 << 10;
/// Bytes gathered before a write.
const WRITE_LEN: usize = 1 << 20;

/// All downloads of one image. They end when this goes.
pub(super) struct Downloads {
    from: Arc<From>,
    tasks: JoinSet<()>,
    slots: Arc<Semaphore>,
    left: Arc<AtomicUsize>,
}

struct From {
    client: Client,
    endpoint: Endpoint,
    repository: String,
    errand: Errand,
    scope: Option<String>,
}

/// A layer that is coming.
pub(super) struct Download {
    file: oneshot::Receiver<Result<Pinned, PullError>>,
}

impl Downloads {
    /// What comes is for whoever is named by `scope`, or for everybody.
    pub(super) fn new(
        client: Client,
        endpoint: Endpoint,
        repository: &str,
        errand: Errand,
        scope: Option<String>,
    ) -> Self {
        let from = From { client, endpoint, repository: repository.to_owned(), errand, scope };
        Self {
            from: Arc::new(from),
            tasks: JoinSet::new(),
            slots: Arc::new(Semaphore::new(AT_ONCE_MAX)),
            left: Arc::default(),
        }
    }

    /// Starts one, or lets it wait for its turn; turns come in the order of the calls.
    pub(super) fn start(&mut self, blob: Descriptor, path: PathBuf) -> Download {
        let (sender, file) = oneshot::channel();
        let (from, slots, left) = (self.from.clone(), self.slots.clone(), self.left.clone());
        left.fetch_add(1, Ordering::Relaxed);
        self.tasks.spawn(async move {
            // Never closed.
            let _slot = slots.acquire().await.ok();
            let fetched = from.have(&blob, Scratch::new(path)).await;
            if fetched.is_ok() {
                from.errand.progress.layer_pulled();
            }
            if left.fetch_sub(1, Ordering::Relaxed) == 1 && fetched.is_ok() {
                from.errand.progress.start(Step::Converting);
            }
            // Nobody waits any more if the build has failed; then the file goes.
            let _ = sender.send(fetched);
        });
        Download { file }
    }
}

impl Download {
    /// Waits for the file when it is opened. `all` keeps the downloads going until then.
    pub(super) fn into_layer(self, all: Arc<Downloads>) -> OpenLayer {
        Box::new(move || {
            let fetched = self.file.blocking_recv().unwrap_or(Err(PullError::GivenUp));
            drop(all);
            Ok(Box::new(fetched.map_err(io::Error::other)?.open()?))
        })
    }
}

/// A file that grows, and what of it is known.
struct Partial {
    out: BufWriter<tokio::fs::File>,
    hash: Sha256,
    len: u64,
}

impl From {
    /// Takes the blob from the cache, or fetches it there if nobody else does.
    async fn have(&self, blob: &Descriptor, scratch: Scratch) -> Result<Pinned, PullError> {
        let (blobs, scope) = (&self.client.inner.blobs, self.scope.as_deref());
        let coming = blobs.is_coming(&blob.digest, scope);
        let shown = coming.then(|| self.errand.progress.wait(Wait::Turn("another image fetches the same layer")));
        let turn = blobs.turn(&blob.digest, scope).await.map_err(PullError::Write)?;
        drop(shown);
        match turn {
            Ok(pinned) if pinned.len() == blob.size => {
                self.errand.progress.add_cached(blob.size);
                Ok(pinned)
            }
            Ok(pinned) => Err(self.mismatch(blob, blob.digest.as_str(), pinned.len())),
            Err(turn) => {
                let scratch = self.fetch(blob, scratch).await?;
                turn.keep(scratch.path()).map_err(PullError::Write)
            }
        }
    }

    fn mismatch(&self, blob: &Descriptor, found: &str, len: u64) -> PullError {
        let found = format!("{found} ({len} of {} bytes)", blob.size);
        PullError::Digest { host: self.endpoint.host.clone(), expected: blob.digest.clone(), found }
    }

    async fn fetch(&self, blob: &Descriptor, scratch: Scratch) -> Result<Scratch, PullError> {
        let limit = (FETCH_MIN + Duration::from_secs(blob.size / FETCH_BYTES_PER_SEC_MIN)).min(FETCH_MAX);
        let fetched = tokio::time::timeout(limit, self.fetch_all(blob, scratch)).await;
        fetched.unwrap_or_else(|_| {
            Err(PullError::Protocol {
                host: self.endpoint.host.clone(),
                problem: format!("a layer that does not come within {limit:?}"),
            })
        })
    }

    async fn fetch_all(&self, blob: &Descriptor, scratch: Scratch) -> Result<Scratch, PullError> {
        let file = tokio::fs::File::create_new(scratch.path()).await.map_err(PullError::Write)?;
        let out = BufWriter::with_capacity(WRITE_LEN, file);
        let mut partial = Partial { out, hash: Sha256::new(), len: 0 };
        let mut resumes = 0;
        loop {
            match self.transfer(blob, &mut partial).await {
                Ok(()) => break,
                // A transfer that broke in the middle goes on where it was; one that never began was retried already.
                Err(PullError::Unreachable { .. }) if resumes < RESUMES_MAX && partial.len > 0 => resumes += 1,
                Err(error) => return Err(error),
            }
        }
        partial.out.flush().await.map_err(PullError::Write)?;
        let found: String = partial.hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        if found == blob.digest.hex() && partial.len == blob.size {
            return Ok(scratch);
        }
        Err(self.mismatch(blob, &format!("sha256:{found}"), partial.len))
    }

    async fn transfer(&self, blob: &Descriptor, partial: &mut Partial) -> Result<(), PullError> {
        let mut response = self.request(blob, partial.len).await?;
        if partial.len > 0 && response.status() != StatusCode::PARTIAL_CONTENT {
            self.restart(partial).await?;
        }
        let unreachable = |error| PullError::Unreachable { host: self.endpoint.host.clone(), error };
        while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
            if partial.len + chunk.len() as u64 > blob.size {
                let (host, what) = (self.endpoint.host.clone(), blob.digest.to_string());
                return Err(PullError::TooLarge { host, what, max: blob.size });
            }
            partial.out.write_all(&chunk).await.map_err(PullError::Write)?;
            partial.hash.update(&chunk);
            partial.len += chunk.len() as u64;
            self.errand.progress.add_pulled(chunk.len() as u64);
        }
        Ok(())
    }

    async fn request(&self, blob: &Descriptor, from: u64) -> Result<Response, PullError> {
        let inner = &self.client.inner;
        let url = self.endpoint.url(&self.repository, "blobs", blob.digest.as_str());
        let request = || {
            let request = inner.http.client(&self.endpoint).get(&url);
            if from > 0 { request.header(RANGE, format!("bytes={from}-")) } else { request }
        };
        let response = inner.auth.send(&inner.http, &self.errand, &self.endpoint, &self.repository, request).await?;
        self.client.accept(&self.errand, &self.endpoint, &self.repository, blob.digest.as_str(), response)
    }

    /// The registry sends everything again.
    async fn restart(&self, partial: &mut Partial) -> Result<(), PullError> {
        partial.out.flush().await.map_err(PullError::Write)?;
        partial.out.seek(io::SeekFrom::Start(0)).await.map_err(PullError::Write)?;
        partial.out.get_ref().set_len(0).await.map_err(PullError::Write)?;
        self.errand.progress.take_pulled(partial.len);
        partial.hash = Sha256::new();
        partial.len = 0;
        Ok(())
    }
}
