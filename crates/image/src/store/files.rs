//! The store on disk: what is written in which order, and what a new start makes of what a kill left.

use super::StoreError;
use super::index::{Index, Name};
use crate::source::hash;
use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use warren_model::reference::Digest;
use warren_proto::node::ImageRecord;

/// Version of the disks and records that this code makes; images of others are made anew.
const FORMAT: u32 = 1;
/// Largest record or name that is read, bytes.
const JSON_BYTES_MAX: u64 = 16 << 20;

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

impl Files {
    /// Makes the folders, takes the lock, empties `tmp`.
    pub(super) fn open(dir: &Path) -> Result<Self, StoreError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| StoreError::Io { path, error }
        };
        for sub in ["disks", "records", "names", "tmp"] {
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
        Ok(files)
    }

    /// Reads everything, and removes what is not whole: disks without record, records without disk, names without either.
    pub(super) fn load(&self) -> io::Result<Index> {
        let mut index = Index::default();
        let mut disks = HashSet::new();
        for path in self.paths("records")? {
            let stored: Option<RecordFile> = read_json(&path)?;
            let record = stored.filter(|r| r.format == FORMAT).map(|r| r.record);
            let digest = record.as_ref().and_then(|r| Digest::parse(&r.digest).ok());
            match (record, digest) {
                (Some(record), Some(digest)) if path == self.record(&digest) && self.disk(&digest).is_file() => {
                    disks.insert(self.disk(&digest));
                    index.add(digest, record);
                }
                _ => drop_file(&path)?,
            }
        }
        for path in self.paths("disks")? {
            if !disks.contains(&path) {
                drop_file(&path)?;
            }
        }
        for path in self.paths("names")? {
            match read_json(&path)?.and_then(parse_name) {
                Some((reference, name)) if index.record(&name.digest).is_some() => {
                    index.set_name(reference, name);
                }
                _ => drop_file(&path)?,
            }
        }
        Ok(index)
    }

    /// Disk of an image.
    pub(super) fn disk(&self, digest: &Digest) -> PathBuf {
        self.dir.join("disks").join(format!("{}.ext4", digest.hex()))
    }

    /// A path in `tmp` that nobody else uses.
    pub(super) fn scratch(&self) -> PathBuf {
        self.dir.join("tmp").join(uuid::Uuid::new_v4().simple().to_string())
    }

    /// Takes a synced disk from `tmp` into the store, then its record.
    pub(super) fn add_image(&self, made: &Path, digest: &Digest, record: &ImageRecord) -> io::Result<()> {
        let disk = self.disk(digest);
        fs::rename(made, &disk)?;
        sync_folder(&disk)?;
        self.write_json(&self.record(digest), &RecordFile { format: FORMAT, record: record.clone() })
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

    /// Removes an image: record, then disk.
    pub(super) fn remove_image(&self, digest: &Digest) -> io::Result<()> {
        let record = self.record(digest);
        drop_file(&record)?;
        sync_folder(&record)?;
        drop_file(&self.disk(digest))
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
        let scratch = self.scratch();
        let mut file = File::create_new(&scratch)?;
        file.write_all(&serde_json::to_vec_pretty(value)?)?;
        file.sync_all()?;
        fs::rename(&scratch, path)?;
        sync_folder(path)
    }
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
