use super::{Shared, Store, blocking, chain, image_error, quota};
use crate::chunks::Manifest;
use std::io;
use std::sync::Arc;
use warren_model::reference::Digest;
use warren_proto::node::{CollectedImage, ImageError, ImageGc};

/// An image that a registry can give again.
struct Candidate {
    digest: Digest,
    names: Vec<String>,
    last_used_ms: u64,
    manifest: Manifest,
}

impl Store {
    /// Removes images that registries can give again and nobody holds, the least recently used first, until at most `keep` bytes are
    /// stored; by default until the quota is kept. `dry_run` only says which.
    pub async fn gc(&self, keep: Option<u64>, dry_run: bool) -> Result<ImageGc, ImageError> {
        let shared = self.shared.clone();
        blocking(move || {
            let failed = |error: io::Error| image_error("images", "failed", chain(&error));
            let quota = shared.quota().map_err(failed)?;
            let stored = shared.chunks.bytes();
            let target = keep.or_else(|| quota::target(stored, quota));
            let collected = match target {
                Some(target) => shared.shrink(stored, target, dry_run).map_err(failed)?,
                None => Vec::new(),
            };
            Ok(ImageGc { stored_bytes: shared.chunks.bytes(), quota_bytes: quota, collected })
        })
        .await
    }
}

impl Shared {
    /// Keeps the quota after an image has come; what goes wrong is in the log.
    pub(super) fn keep_quota(self: &Arc<Self>) {
        let stored = self.chunks.bytes();
        let done = self.quota().and_then(|quota| match quota::target(stored, quota) {
            Some(target) => self.shrink(stored, target, false),
            None => Ok(Vec::new()),
        });
        match done {
            Ok(gone) if gone.is_empty() => {}
            Ok(gone) => {
                let bytes: u64 = gone.iter().map(|image| image.bytes).sum();
                tracing::info!(
                    images = gone.len(),
                    bytes,
                    "images that were not used for the longest time are removed"
                );
            }
            Err(error) => tracing::warn!(error = chain(&error), "images over the quota cannot be removed"),
        }
    }

    /// Bytes that may be stored.
    fn quota(&self) -> io::Result<u64> {
        if let Some(quota) = self.quota_bytes {
            return Ok(quota);
        }
        let stat = rustix::fs::statvfs(self.files.dir())?;
        let (available, total) = (stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize);
        Ok(quota::by_free_space(self.chunks.bytes(), available, total))
    }

    fn shrink(&self, stored: u64, target: u64, dry_run: bool) -> io::Result<Vec<CollectedImage>> {
        let mut trial = self.chunks.trial();
        let chosen = quota::choose(self.candidates()?, stored, target, |c| io::Result::Ok(trial.release(&c.manifest)))?;
        let mut collected = Vec::new();
        for (candidate, bytes) in chosen {
            if dry_run || self.remove_unheld(&candidate)? {
                let Candidate { digest, names, last_used_ms, .. } = candidate;
                collected.push(CollectedImage { digest: digest.to_string(), references: names, last_used_ms, bytes });
            }
        }
        Ok(collected)
    }

    /// All that may go, the least recently used first.
    fn candidates(&self) -> io::Result<Vec<Candidate>> {
        let free: Vec<(Digest, Vec<String>, u64)> = {
            let index = self.index();
            index.refetchable().into_iter().filter(|(digest, ..)| !self.leases.held(digest)).collect()
        };
        let mut candidates = Vec::new();
        for (digest, names, last_used_ms) in free {
            // One that went in the meantime is no candidate.
            if let Some(manifest) = self.files.read_manifest(&digest)? {
                candidates.push(Candidate { digest, names, last_used_ms, manifest });
            }
        }
        candidates.sort_by_key(|candidate| candidate.last_used_ms);
        Ok(candidates)
    }

    /// Whether it went: somebody may hold it by now.
    fn remove_unheld(&self, candidate: &Candidate) -> io::Result<bool> {
        {
            let mut index = self.index();
            if self.leases.held(&candidate.digest)
                || index.last_used_ms(&candidate.digest) != Some(candidate.last_used_ms)
            {
                return Ok(false);
            }
            // A name may lead elsewhere by now.
            let leads_here = |name: &&String| {
                index.name(name).is_some_and(|to| to.digest == candidate.digest && to.resolved.is_some())
            };
            let names: Vec<&String> = candidate.names.iter().filter(leads_here).collect();
            for name in names {
                self.files.remove_name(name)?;
                index.forget_name(name);
            }
        }
        Ok(self.collect(&candidate.digest))
    }
}
