//! What is done for snapshots behind their backs: each is made to last, gets its digest, and has a long chain of memory made flat; what nobody
//! needs any more goes.

use super::record::Record;
use super::{RECORD_FILE, Snapshots, kept, layer_file};
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Weak};
use tokio::sync::Notify;
use warren_model::SnapshotId;
use warren_proto::shim::files;
use warren_vmm::Delta;

/// Deltas on each other from which on the uppermost is made flat.
const MEMORY_CHAIN_MAX: usize = 6;
/// Bytes hashed at once.
const BLOCK_LEN: usize = 1 << 20;
/// A flat delta on its way.
const FLAT_FILE: &str = "delta.flat";

/// Tends to the snapshots of `snapshots` until they are gone.
pub(super) async fn tend(snapshots: Weak<Snapshots>, asked: Arc<Notify>) {
    loop {
        if let Some(all) = snapshots.upgrade() {
            all.collect();
        }
        while let Some(next) = snapshots.upgrade().and_then(|all| Some((all.next_untended()?, all))) {
            let (id, all) = next;
            all.collect();
            let tended = tokio::task::spawn_blocking(move || all.tend_to(&id).map_err(|error| (id, error))).await;
            if let Ok(Err((id, error))) = tended {
                tracing::error!(snapshot = %id, %error, "a snapshot is not safe yet; tried again at the next start");
                if let Some(all) = snapshots.upgrade() {
                    all.give_up_tending(id);
                }
            }
        }
        if snapshots.strong_count() == 0 {
            return;
        }
        asked.notified().await;
    }
}

impl Snapshots {
    /// The oldest that has no digest: what it lies on comes before it.
    fn next_untended(&self) -> Option<SnapshotId> {
        let known = self.known();
        let untended = known.records.values().filter(|r| r.digest.is_none() && !known.given_up.contains(&r.id));
        untended.min_by_key(|record| (record.created_at_ms, record.id.clone())).map(|record| record.id.clone())
    }

    fn give_up_tending(&self, id: SnapshotId) {
        self.known().given_up.insert(id);
    }

    /// Blocks.
    fn tend_to(self: &Arc<Self>, id: &SnapshotId) -> io::Result<()> {
        // It stays while it is being read.
        let Some(_lease) = self.lease(id) else { return Ok(()) };
        let Some((record, below)) = self.with_parents(id) else { return Ok(()) };
        let folder = self.folder(id);
        let delta_sum = sum_of(&File::open(folder.join(files::DELTA))?)?;
        let mut whole = blake3::Hasher::new();
        whole.update(record.image_digest.as_bytes());
        for parent in below {
            whole.update(b"\0").update(parent.as_bytes());
        }
        whole.update(delta_sum.as_bytes());
        let mut others = vec![folder.join(files::STATE)];
        others.extend((!record.lent.is_empty()).then(|| folder.join(files::LENT)));
        others.extend((0..record.layers).map(|number| folder.join(layer_file(number))));
        for file in &others {
            whole.update(sum_of(&File::open(file)?)?.as_bytes());
        }
        File::open(&folder)?.sync_all()?;
        let digest = Some(format!("blake3:{}", whole.finalize().to_hex()));
        self.change(id, |record| {
            record.digest = digest;
            record.delta_sum = Some(delta_sum);
            Ok(())
        })?;
        self.known().verified.insert(id.clone());
        self.flatten_memory(id)
    }

    /// The record, and the digests of what it lies on.
    fn with_parents(&self, id: &SnapshotId) -> Option<(Record, Vec<String>)> {
        let known = self.known();
        let record = known.records.get(id)?.clone();
        let parents = record.memory_on.iter().chain(&record.disk_on).map(|parent| known.records.get(parent));
        let digests = parents.map(|parent| parent.and_then(|parent| parent.digest.clone()).unwrap_or_default());
        let digests = digests.collect();
        Some((record, digests))
    }

    /// Gives it a delta on the base template alone, if it lies on many.
    fn flatten_memory(&self, id: &SnapshotId) -> io::Result<()> {
        let memory_len = {
            let known = self.known();
            let chain = kept::chain(&known.records, id, |record| record.memory_on.as_ref()).unwrap_or_default();
            let long = chain.len() > MEMORY_CHAIN_MAX;
            chain.last().filter(|_| long).map(|record| record.shape.memory_mib << 20)
        };
        let Some(memory_len) = memory_len else { return Ok(()) };
        let folder = self.folder(id);
        let flat = folder.join(FLAT_FILE);
        let deltas: Result<Vec<Delta>, _> =
            self.deltas(id)?.into_iter().map(|delta| Delta::open(delta, memory_len)).collect();
        let deltas = deltas.map_err(io::Error::other)?;
        let mut out = BufWriter::new(File::create(&flat)?);
        Delta::merge(&deltas, &mut out).map_err(io::Error::other)?;
        let flat_file = out.into_inner().map_err(|error| error.into_error())?;
        let sum = sum_of(&File::open(&flat)?)?;
        drop(flat_file);
        // Either of the two may be there after a kill between these steps. A flat delta on what it has in it already is the same memory.
        self.change(id, |record| {
            record.flat_sum = Some(sum.clone());
            Ok(())
        })?;
        self.change(id, |record| {
            std::fs::rename(&flat, folder.join(files::DELTA))?;
            record.memory_on = None;
            record.delta_sum = Some(sum);
            record.flat_sum = None;
            Ok(())
        })?;
        tracing::debug!(snapshot = %id, deltas = deltas.len(), "memory made flat");
        self.collect();
        Ok(())
    }

    /// Changes a record on disk, then in memory.
    pub(super) fn change(&self, id: &SnapshotId, change: impl FnOnce(&mut Record) -> io::Result<()>) -> io::Result<()> {
        let mut known = self.known();
        let Some(mut record) = known.records.get(id).cloned() else { return Ok(()) };
        change(&mut record)?;
        let bytes = serde_json::to_vec(&record)?;
        crate::ended::write_whole(&self.folder(id).join(RECORD_FILE), &bytes)?;
        known.records.insert(id.clone(), record);
        Ok(())
    }

    /// The deltas that the memory of a snapshot is made of, the lowest first, each looked at once in this process's life: whether it still is
    /// what it was. Blocks.
    pub(super) fn deltas(&self, top: &SnapshotId) -> io::Result<Vec<File>> {
        let found = {
            // Opened under the lock: none of them goes, or is made flat, in between.
            let known = self.known();
            let chain = kept::chain(&known.records, top, |record| record.memory_on.as_ref());
            let chain =
                chain.ok_or_else(|| io::Error::other(format!("a part that snapshot {top} lies on is missing")))?;
            let open = |record: &Record| {
                let unverified = !known.verified.contains(&record.id);
                let sums = [record.delta_sum.clone(), record.flat_sum.clone()];
                let wanted: Vec<String> = sums.into_iter().flatten().filter(|_| unverified).collect();
                io::Result::Ok((record.id.clone(), wanted, File::open(self.folder(&record.id).join(files::DELTA))?))
            };
            chain.into_iter().map(open).collect::<io::Result<Vec<_>>>()?
        };
        let mut files = Vec::with_capacity(found.len());
        for (id, wanted, file) in found {
            if !wanted.is_empty() {
                if !wanted.contains(&sum_of(&file)?) {
                    return Err(io::Error::other(format!("the memory of snapshot {id} is damaged on the node's disk")));
                }
                self.known().verified.insert(id);
            }
            files.push(file);
        }
        Ok(files)
    }
}

/// Hash of a file, which is on the disk then.
fn sum_of(file: &File) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    let (mut block, mut at) = (vec![0; BLOCK_LEN], 0);
    loop {
        match file.read_at(&mut block, at)? {
            0 => break,
            len => {
                hasher.update(&block[..len]);
                at += len as u64;
            }
        }
    }
    file.sync_all()?;
    Ok(hasher.finalize().to_hex().to_string())
}
