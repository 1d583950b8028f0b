//! The store on disk: what is written in which order, and what a new start makes of what a kill left.

use super::StoreError;
use super::index::{Index, Name, Stored};
use crate::chunks::{Chunks, Manifest};
use crate::remote::Artifact;
use crate::source::hash;
use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use warren_model::reference::Digest;
use warren_proto::node::ImageRecord;

/// Version of the disks and records that this code makes; images of others are made anew.
const FORMAT: u32 = 2;
/// Largest record or name that is read, bytes.
const JSON_BYTES_MAX: u64 = 16 << 20;
/// Where disks were files of their own, before [`FORMAT`] 2.
const OLD_DISKS: &str = "disks";

/// Paths of an open store, which no other process has open.
#[derive(Debug)]
pub(super) struct Files {
    dir: PathBuf,
    /// Locked while it is open.
    _lock: File,
}

#[derive(Serialize, Deserialize)]
struct RecordFile {
    format: u32,
    record: ImageRecord,
}

#[derive(Serialize, Deserialize)]
struct NameFile {
    reference: String,
    digest: String,
    resolved: Option<String>,
    #[serde(default)]
    private: bool,
}

/// An image as it was found.
struct Loaded {
    digest: Digest,
    image: Stored,
    manifest: Manifest,
    /// Whether it was arriving.
    is_marked: bool,
    /// Where its chunks come from then.
    artifact: Option<Artifact>,
}

/// An image whose chunks are still to come.
pub(super) struct Arriving {
    pub(super) digest: Digest,
    pub(super) manifest: Manifest,
    pub(super) artifact: Artifact,
}

impl Files {
    /// Makes the folders, takes the lock, empties `tmp`.
    pub(super) fn open(dir: &Path) -> Result<Self, StoreError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| StoreError::Io { path, error }
        };
        for sub in ["manifests", "records", "names", "artifacts", "arriving", "tmp"] {
            let path = dir.join(sub);
            fs::create_dir_all(&path).map_err(failed(&path))?;
        }
        let lock_path = dir.join("lock");
        let lock =
            File::options().create(true).truncate(false).write(true).open(&lock_path).map_err(failed(&lock_path))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(StoreError::Locked(dir.to_owned())),
            Err(errno) => return Err(StoreError::Io { path: lock_path, error: errno.into() }),
        }
        let files = Self { dir: dir.to_owned(), _lock: lock };
        for path in files.paths("tmp").map_err(failed(dir))? {
            fs::remove_file(&path).map_err(failed(&path))?;
        }
        let old_disks = dir.join(OLD_DISKS);
        if old_disks.exists() {
            fs::remove_dir_all(&old_disks).map_err(failed(&old_disks))?;
        }
        Ok(files)
    }

    /// The file of all chunks.
    pub(super) fn chunks(&self) -> PathBuf {
        self.dir.join("chunks")
    }

    /// Reads everything, and removes what is not whole: manifests without record, records without manifest, names without either,
    /// chunks that no manifest names. Also gives the images whose chunks were still arriving, unless `arrivals` cannot go on.
    pub(super) fn load(&self, chunks: &Chunks, arrivals: bool) -> io::Result<(Index, Vec<Arriving>)> {
        let mut index = Index::default();
        let mut loaded = self.load_records()?;
        // Those that are whole first: what they hold needs no look.
        loaded.sort_by_key(|loaded| loaded.is_marked);
        let mut resumed = Vec::new();
        for Loaded { digest, image, manifest, is_marked, artifact } in loaded {
            if !chunks.adopt(&manifest, is_marked) {
                continue;
            }
            let is_whole = !is_marked || manifest.parts.iter().all(|part| chunks.is_here(&part.id));
            match artifact.filter(|_| arrivals) {
                Some(artifact) => {
                    index.add(digest.clone(), image);
                    resumed.push(Arriving { digest, manifest, artifact });
                }
                None if is_whole => index.add(digest, image),
                // Nobody can bring the rest.
                None => chunks.release(&manifest),
            }
        }
        self.drop_all_but(&index, &resumed)?;
        chunks.sweep()?;
        for path in self.paths("names")? {
            match read_json(&path)?.and_then(parse_name) {
                Some((reference, name)) if index.record(&name.digest).is_some() => {
                    index.set_name(reference, name);
                }
                _ => drop_file(&path)?,
            }
        }
        Ok((index, resumed))
    }

    /// Images with record and manifest.
    fn load_records(&self) -> io::Result<Vec<Loaded>> {
        let mut all = Vec::new();
        for path in self.paths("records")? {
            let stored: Option<RecordFile> = read_json(&path)?;
            let Some(record) = stored.filter(|r| r.format == FORMAT).map(|r| r.record) else { continue };
            let Ok(digest) = Digest::parse(&record.digest) else { continue };
            let Some(manifest) = self.read_manifest(&digest)?.filter(|_| path == self.record(&digest)) else {
                continue;
            };
            let image = Stored::new(record, &manifest, millis(path.metadata()?.modified()?));
            let mark = self.arriving(&digest);
            let is_marked = mark.exists();
            let artifact = if is_marked { Artifact::decode(&fs::read(&mark)?) } else { None };
            // Its parts are paired with the manifest's by their order.
            let artifact = artifact.filter(|artifact| artifact.is_of(&manifest));
            all.push(Loaded { digest, image, manifest, is_marked, artifact });
        }
        Ok(all)
    }

    /// Removes files of images that are not in `index`.
    fn drop_all_but(&self, index: &Index, resumed: &[Arriving]) -> io::Result<()> {
        let digests = index.digests();
        let arriving: Vec<&Digest> = resumed.iter().map(|arriving| &arriving.digest).collect();
        let kept = |of: fn(&Self, &Digest) -> PathBuf, digests: &[&Digest]| -> HashSet<PathBuf> {
            digests.iter().map(|digest| of(self, digest)).collect()
        };
        for (folder, kept) in [
            ("records", kept(Self::record, &digests)),
            ("manifests", kept(Self::manifest, &digests)),
            ("artifacts", kept(Self::artifact, &digests)),
            ("arriving", kept(Self::arriving, &arriving)),
        ] {
            self.paths(folder)?.iter().filter(|path| !kept.contains(*path)).try_for_each(|path| drop_file(path))?;
        }
        Ok(())
    }

    /// What the disk of an image is made of; `None` if that is not known.
    pub(super) fn read_manifest(&self, digest: &Digest) -> io::Result<Option<Manifest>> {
        match fs::read(self.manifest(digest)) {
            Ok(bytes) => Ok(Manifest::decode(&bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A path in `tmp` that nobody else uses.
    pub(super) fn scratch(&self) -> PathBuf {
        self.dir.join("tmp").join(uuid::Uuid::new_v4().simple().to_string())
    }

    /// Takes an image whose chunks are synced into the store: its manifest, then its record.
    pub(super) fn add_image(&self, digest: &Digest, record: &ImageRecord, manifest: &Manifest) -> io::Result<()> {
        self.write_file(&self.manifest(digest), &manifest.encode())?;
        self.write_json(&self.record(digest), &RecordFile { format: FORMAT, record: record.clone() })
    }

    /// Writes down that an image was used: the time of its record.
    pub(super) fn note_use(&self, digest: &Digest, at: SystemTime) -> io::Result<()> {
        File::options().write(true).open(self.record(digest))?.set_modified(at)
    }

    /// The folder of the store.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes where a name leads.
    pub(super) fn write_name(&self, reference: &str, name: &Name) -> io::Result<()> {
        let file = NameFile {
            reference: reference.to_owned(),
            digest: name.digest.to_string(),
            resolved: name.resolved.as_ref().map(Digest::to_string),
            private: name.private,
        };
        self.write_json(&self.name(reference)?, &file)
    }

    /// Removes a name.
    pub(super) fn remove_name(&self, reference: &str) -> io::Result<()> {
        let path = self.name(reference)?;
        drop_file(&path)?;
        sync_folder(&path)
    }

    /// Notes, before anything else, that an image comes from the object store chunk by chunk.
    pub(super) fn begin_arrival(&self, digest: &Digest, artifact: &[u8]) -> io::Result<()> {
        self.write_file(&self.arriving(digest), artifact)
    }

    /// Takes back the note of an arrival that did not begin.
    pub(super) fn break_off_arrival(&self, digest: &Digest) -> io::Result<()> {
        drop_file(&self.arriving(digest))
    }

    /// All chunks of an image have come and are synced.
    pub(super) fn end_arrival(&self, digest: &Digest) -> io::Result<()> {
        fs::rename(self.arriving(digest), self.artifact(digest))?;
        sync_folder(&self.arriving(digest))
    }

    /// Notes that the object store has an image, and where.
    pub(super) fn write_artifact(&self, digest: &Digest, artifact: &[u8]) -> io::Result<()> {
        self.write_file(&self.artifact(digest), artifact)
    }

    /// Whether the object store has an image, as far as this node knows.
    pub(super) fn is_uploaded(&self, digest: &Digest) -> bool {
        self.artifact(digest).exists() || self.arriving(digest).exists()
    }

    /// Artifacts of images of this node that the object store has.
    pub(super) fn artifacts(&self) -> io::Result<Vec<PathBuf>> {
        self.paths("artifacts")
    }

    /// Removes an image: record, then all else. Its chunks may go after that.
    pub(super) fn remove_image(&self, digest: &Digest) -> io::Result<()> {
        for path in [self.record(digest), self.manifest(digest), self.arriving(digest), self.artifact(digest)] {
            drop_file(&path)?;
            sync_folder(&path)?;
        }
        Ok(())
    }

    fn manifest(&self, digest: &Digest) -> PathBuf {
        self.dir.join("manifests").join(digest.hex())
    }

    fn artifact(&self, digest: &Digest) -> PathBuf {
        self.dir.join("artifacts").join(digest.hex())
    }

    fn arriving(&self, digest: &Digest) -> PathBuf {
        self.dir.join("arriving").join(digest.hex())
    }

    fn record(&self, digest: &Digest) -> PathBuf {
        self.dir.join("records").join(format!("{}.json", digest.hex()))
    }

    fn name(&self, reference: &str) -> io::Result<PathBuf> {
        let hash = hash(reference.as_bytes()).map_err(io::Error::other)?;
        Ok(self.dir.join("names").join(format!("{}.json", hash.hex())))
    }

    fn paths(&self, sub: &str) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(self.dir.join(sub))?.map(|entry| Ok(entry?.path())).collect()
    }

    fn write_json(&self, path: &Path, value: &impl Serialize) -> io::Result<()> {
        self.write_file(path, &serde_json::to_vec_pretty(value)?)
    }

    fn write_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let scratch = self.scratch();
        let mut file = File::create_new(&scratch)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&scratch, path)?;
        sync_folder(path)
    }
}

/// Milliseconds since 1970.
pub(super) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn parse_name(file: NameFile) -> Option<(String, Name)> {
    let resolved = match &file.resolved {
        Some(text) => Some(Digest::parse(text).ok()?),
        None => None,
    };
    let name = Name { digest: Digest::parse(&file.digest).ok()?, resolved, private: file.private };
    Some((file.reference, name))
}

/// `None` if the file does not hold what it should.
fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    if path.metadata()?.len() > JSON_BYTES_MAX {
        return Ok(None);
    }
    Ok(serde_json::from_slice(&fs::read(path)?).ok())
}

/// Removes a file that may be gone already.
fn drop_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

fn sync_folder(of: &Path) -> io::Result<()> {
    match of.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
