//! The snapshots of this node: files, what lies on what, and who needs them.
//!
//! ```text
//! snapshots/<id>/snapshot.json   what is known of it; written last, and removed first
//! snapshots/<id>/state           device state
//! snapshots/<id>/delta           memory that differs from what it lies on
//! snapshots/<id>/lent            what transfers had of the exchange disk, if anything
//! snapshots/<id>/layer-<n>.qcow2 frozen overlays, the lowest first
//! ```

mod app_template;
mod kept;
mod record;
mod take;
mod tend;

pub(crate) use app_template::key as template_key;
pub(crate) use record::Record;
pub(crate) use take::{TakenFrom, open_folder, take};

use crate::ended::write_whole;
use crate::host::boot_id;
use crate::sealed::SealedMemories;
use crate::spare::SpareMemory;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use warren_model::SnapshotId;
use warren_proto::node::{SnapshotError, SnapshotInfo};
use warren_proto::shim::files;
use warren_vmm::Delta;

const RECORD_FILE: &str = "snapshot.json";

/// All snapshots of a node.
pub(crate) struct Snapshots {
    dir: PathBuf,
    known: Mutex<Known>,
    /// Asks for a look at what is to be done for them.
    untended: Arc<Notify>,
    images: warren_image::Store,
    /// Memories that machines start from.
    pub(crate) memories: SealedMemories,
    spare: Arc<SpareMemory>,
}

#[derive(Default)]
struct Known {
    records: BTreeMap<SnapshotId, Record>,
    leases: HashMap<SnapshotId, usize>,
    /// Keep the images that their disks lie on.
    images: HashMap<SnapshotId, warren_image::Lease>,
    /// Whether all leases of an earlier run are taken again.
    all_leased: bool,
    /// Whose delta was found to be as it was written.
    verified: HashSet<SnapshotId>,
    /// What could not be made to last.
    given_up: HashSet<SnapshotId>,
}

/// Keeps a snapshot's files, and those of what it lies on, while it lives.
pub(crate) struct SnapshotLease {
    snapshots: Arc<Snapshots>,
    id: SnapshotId,
}

impl SnapshotLease {
    /// Of which snapshot.
    pub(crate) fn id(&self) -> &SnapshotId {
        &self.id
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        // Ends the task that tends to them.
        self.untended.notify_one();
    }
}

impl Drop for SnapshotLease {
    fn drop(&mut self) {
        let mut known = self.snapshots.known();
        if let Some(count) = known.leases.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                known.leases.remove(&self.id);
            }
        }
        drop(known);
        // Not collected here: a runtime that is being shut down drops the leases of sandboxes that outlive this process.
        self.snapshots.untended.notify_one();
    }
}

/// What a machine goes on from.
pub(crate) struct Origin {
    pub(crate) record: Record,
    /// Frozen overlays, the lowest first.
    pub(crate) layers: Vec<PathBuf>,
    pub(crate) state: PathBuf,
    /// What transfers had, if anything.
    pub(crate) lent: Option<PathBuf>,
}

impl Snapshots {
    /// Opens the folder, and removes what was never whole. Nothing else goes until [`Snapshots::start_tending`].
    pub(crate) fn open(dir: PathBuf, images: warren_image::Store) -> io::Result<Arc<Self>> {
        std::fs::create_dir_all(&dir)?;
        let mut records = BTreeMap::new();
        for entry in std::fs::read_dir(&dir)? {
            let folder = entry?.path();
            let record = match std::fs::read(folder.join(RECORD_FILE)) {
                Ok(bytes) => Some(serde_json::from_slice::<Record>(&bytes)?),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            // After a loss of power, one that was not safe yet may have holes.
            let safe = |record: &Record| record.digest.is_some() || record.boot == boot_id();
            match record.filter(|record| folder.ends_with(record.id.as_str()) && safe(record)) {
                Some(record) => drop(records.insert(record.id.clone(), record)),
                None => std::fs::remove_dir_all(&folder)?,
            }
        }
        let mut known = Known { records, ..Known::default() };
        for record in known.records.values() {
            match images.lease(&record.image_digest) {
                Some(image) => drop(known.images.insert(record.id.clone(), image.lease)),
                None => {
                    tracing::warn!(snapshot = %record.id, image = record.image_digest, "the image of a snapshot is not here")
                }
            }
        }
        let known = Mutex::new(known);
        Ok(Arc::new(Self {
            dir,
            known,
            untended: Arc::default(),
            images,
            memories: SealedMemories::default(),
            spare: Arc::default(),
        }))
    }

    /// Removes what nobody needs, now and from now on, and tends to what there is. To be called once all leases of an earlier run are taken again.
    pub(crate) fn start_tending(self: &Arc<Self>) {
        self.known().all_leased = true;
        tokio::spawn(tend::tend(Arc::downgrade(self), self.untended.clone()));
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn folder(&self, id: &SnapshotId) -> PathBuf {
        self.dir.join(id.as_str())
    }

    /// What is known of one that is here and was not deleted.
    pub(crate) fn get(&self, id: &SnapshotId) -> Option<Record> {
        self.known().records.get(id).filter(|record| !record.deleted).cloned()
    }

    /// Takes note of the starts that a snapshot stands for, in place of the one before.
    pub(crate) fn offer(&self, id: &SnapshotId, key: String) -> Result<(), SnapshotError> {
        self.get(id).ok_or_else(|| SnapshotError::NoSnapshot(id.clone()))?;
        let offer = |record: &mut Record| {
            record.offered = Some(key);
            Ok(())
        };
        self.change(id, offer).map_err(|e| SnapshotError::Failed(format!("write snapshot {id}: {e}")))
    }

    /// The newest app template for these starts, with a lease.
    pub(crate) fn offered(self: &Arc<Self>, key: &str) -> Option<SnapshotLease> {
        let newest = {
            let known = self.known();
            let offered = known.records.values().filter(|r| !r.deleted && r.offered.as_deref() == Some(key));
            offered.max_by_key(|record| record.created_at_ms).map(|record| record.id.clone())
        };
        self.lease(&newest?)
    }

    /// All that were not deleted; `usable` says which of them a machine can go on from.
    pub(crate) fn list(&self, usable: impl Fn(&Record) -> bool) -> Vec<SnapshotInfo> {
        let known = self.known();
        let seen = known.records.values().filter(|record| !record.deleted);
        seen.filter_map(|record| Some(SnapshotInfo { usable: usable(record), ..record.info()? })).collect()
    }

    /// Keeps a snapshot, deleted or not; `None` if it is not here.
    pub(crate) fn lease(self: &Arc<Self>, id: &SnapshotId) -> Option<SnapshotLease> {
        let mut known = self.known();
        known.records.contains_key(id).then(|| {
            *known.leases.entry(id.clone()).or_default() += 1;
            SnapshotLease { snapshots: self.clone(), id: id.clone() }
        })
    }

    /// What a machine needs that goes on from a snapshot.
    pub(crate) fn origin(&self, lease: &SnapshotLease) -> Result<Origin, SnapshotError> {
        let id = lease.id();
        let known = self.known();
        let records = &known.records;
        let record = records.get(id).ok_or_else(|| SnapshotError::NoSnapshot(id.clone()))?;
        let lost = || SnapshotError::Failed(format!("a part that snapshot {id} lies on is missing"));
        let disk = kept::chain(records, id, |record| record.disk_on.as_ref()).ok_or_else(lost)?;
        let layers = disk.iter().flat_map(|record| {
            let folder = self.folder(&record.id);
            (0..record.layers).map(move |number| folder.join(layer_file(number)))
        });
        let folder = self.folder(id);
        Ok(Origin {
            layers: layers.collect(),
            state: folder.join(files::STATE),
            lent: (!record.lent.is_empty()).then(|| folder.join(files::LENT)),
            record: record.clone(),
        })
    }

    /// The memory of a snapshot, laid on that of its base template: made now, or what others use already.
    pub(crate) async fn memory(self: &Arc<Self>, origin: &Origin, template: &Path) -> Result<Arc<File>, SnapshotError> {
        let failed = |e: &dyn std::fmt::Display| SnapshotError::Failed(format!("lay out the memory: {e}"));
        let (template, id, this) = (template.to_owned(), origin.record.id.clone(), self.clone());
        let runtime = tokio::runtime::Handle::current();
        let make = move || {
            let memory = this.spare.take(&template)?;
            let _runtime = runtime.enter();
            this.spare.make_ahead(template);
            let len = memory.metadata()?.len();
            for delta in this.deltas(&id)? {
                let delta = Delta::open(delta, len).and_then(|delta| delta.apply(&memory));
                delta.map_err(io::Error::other)?;
            }
            Ok(memory)
        };
        self.memories.get(&self.folder(&origin.record.id), make).await.map_err(|e| failed(&e))
    }

    /// Takes note that nobody wants to see it any more; its files go when nothing lies on it.
    pub(crate) fn delete(&self, id: &SnapshotId) -> io::Result<()> {
        self.change(id, |record| {
            record.deleted = true;
            Ok(())
        })?;
        self.collect();
        Ok(())
    }

    /// Writes a record down, then knows it.
    fn put(&self, record: Record) -> io::Result<()> {
        // The sandbox that it was taken of has one, too.
        let image = self.images.lease(&record.image_digest);
        let mut known = self.known();
        write_whole(&self.folder(&record.id).join(RECORD_FILE), &serde_json::to_vec(&record)?)?;
        if let Some(image) = image {
            known.images.insert(record.id.clone(), image.lease);
        }
        known.records.insert(record.id.clone(), record);
        Ok(())
    }

    /// Removes what nobody needs; nothing before [`Snapshots::start_tending`].
    pub(crate) fn collect(&self) {
        let mut known = self.known();
        if !known.all_leased {
            return;
        }
        let kept = kept::kept(&known.records, known.leases.keys().cloned());
        let gone: Vec<SnapshotId> = known.records.keys().filter(|id| !kept.contains(id)).cloned().collect();
        for id in gone {
            let folder = self.folder(&id);
            // The record first: what is left without one is nothing.
            let removed =
                std::fs::remove_file(folder.join(RECORD_FILE)).and_then(|()| std::fs::remove_dir_all(&folder));
            if let Err(error) = removed {
                tracing::warn!(snapshot = %id, %error, "the files of a snapshot cannot be removed; tried again at the next start");
            }
            self.memories.forget(&folder);
            known.records.remove(&id);
            known.verified.remove(&id);
            known.images.remove(&id);
        }
    }
}

/// Name of a layer in its snapshot's folder.
fn layer_file(number: usize) -> String {
    format!("layer-{number}.qcow2")
}
