//! Compressed layers, manifests and configs by digest, kept so that no registry is asked for the same bytes twice.
//!
//! `images/blobs/<hex>` is for everybody; `<hex>.<owner>` came through somebody's saved login and is for that owner alone, since
//! a digest is no secret. A file is checked while it comes in, then renamed into place; one of an earlier run is checked before
//! its first use, so neither a kill nor a loss of power leaves anything that is believed and false. The least recently used go
//! when all together are over the quota, but none that somebody reads.

use crate::source::hash;
use crate::store::{blocking, lock};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::SystemTime;
use tokio::sync::OwnedMutexGuard;
use warren_model::reference::Digest;

/// Name of the folder in the store's.
const FOLDER: &str = "blobs";
/// Characters of an owner's hash in a file name.
const OWNER_LEN: usize = 32;
/// Turns that are remembered before those that nobody waits for are dropped.
const TURNS_KEPT_MAX: usize = 256;

/// The cache.
#[derive(Debug)]
pub(crate) struct Blobs {
    dir: PathBuf,
    /// Bytes that may stay while nobody reads them.
    quota: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<String, Entry>,
    bytes: u64,
    /// Grows with each use.
    clock: u64,
    turns: HashMap<String, Weak<tokio::sync::Mutex<()>>>,
}

#[derive(Debug)]
struct Entry {
    /// Tells it from an earlier one of the same key.
    id: u64,
    len: u64,
    used: u64,
    pins: usize,
    checked: bool,
}

/// The right to fetch one blob: whoever else wants it waits.
#[derive(Debug)]
pub(crate) struct Turn {
    blobs: Arc<Blobs>,
    key: String,
    _alone: OwnedMutexGuard<()>,
}

/// A blob that stays while this lives.
#[derive(Debug)]
pub(crate) struct Pinned {
    blobs: Arc<Blobs>,
    key: String,
    id: u64,
    len: u64,
}

/// Reads a blob, which stays meanwhile.
pub(crate) struct PinnedReader {
    file: File,
    _pinned: Pinned,
}

impl Blobs {
    /// Opens the cache in the store's folder `images`, which this process has locked.
    pub(crate) fn open(images: &Path, quota: u64) -> io::Result<Arc<Self>> {
        let dir = images.join(FOLDER);
        fs::create_dir_all(&dir)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let (metadata, name) = (entry.metadata()?, entry.file_name().into_string().unwrap_or_default());
            match is_key(&name) && metadata.is_file() {
                true => found.push((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), name, metadata.len())),
                false => tracing::warn!(path = ?entry.path(), "not a blob of the cache; left alone"),
            }
        }
        found.sort();
        let mut state = State::default();
        for (_, key, len) in found {
            state.add(key, len, false);
        }
        let blobs = Self { dir, quota, state: Mutex::new(state) };
        blobs.trim(&mut lock(&blobs.state), quota);
        Ok(Arc::new(blobs))
    }

    /// Waits until nobody else fetches the blob; then either it is here, or it is the caller's to fetch.
    pub(crate) async fn turn(
        self: &Arc<Self>,
        digest: &Digest,
        scope: Option<&str>,
    ) -> io::Result<Result<Pinned, Turn>> {
        let own = key(digest, scope)?;
        let alone = self.place(&own).lock_owned().await;
        for key in [digest.hex().to_owned(), own.clone()] {
            if let Some(pinned) = self.find(key, digest).await {
                return Ok(Ok(pinned));
            }
        }
        Ok(Err(Turn { blobs: self.clone(), key: own, _alone: alone }))
    }

    /// Whether somebody fetches the blob now.
    pub(crate) fn is_coming(&self, digest: &Digest, scope: Option<&str>) -> bool {
        let Ok(key) = key(digest, scope) else { return false };
        let place = lock(&self.state).turns.get(&key).and_then(Weak::upgrade);
        place.is_some_and(|place| place.try_lock().is_err())
    }

    /// Has everything checked again before its next use: some of it may be damaged.
    pub(crate) fn doubt(&self) {
        lock(&self.state).entries.values_mut().for_each(|entry| entry.checked = false);
    }

    /// Removes everything that nobody reads, for want of room on the disk.
    pub(crate) fn clear(&self) {
        self.trim(&mut lock(&self.state), 0);
    }

    fn place(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let turns = &mut lock(&self.state).turns;
        if let Some(place) = turns.get(key).and_then(Weak::upgrade) {
            return place;
        }
        if turns.len() >= TURNS_KEPT_MAX {
            turns.retain(|_, place| place.strong_count() > 0);
        }
        let place = Arc::default();
        turns.insert(key.to_owned(), Arc::downgrade(&place));
        place
    }

    async fn find(self: &Arc<Self>, key: String, digest: &Digest) -> Option<Pinned> {
        let (id, len, checked) = {
            let mut state = lock(&self.state);
            state.clock += 1;
            let used = state.clock;
            let entry = state.entries.get_mut(&key)?;
            entry.pins += 1;
            entry.used = used;
            (entry.id, entry.len, entry.checked)
        };
        let pinned = Pinned { blobs: self.clone(), key: key.clone(), id, len };
        let (path, wanted) = (self.path(&key), digest.clone());
        let good = blocking(move || {
            let file = File::open(&path)?;
            // For the order after a restart only.
            let _ = file.set_modified(SystemTime::now());
            io::Result::Ok(checked || hash_of(file)? == wanted.hex())
        });
        if good.await.is_ok_and(|good| good) {
            lock(&self.state).with(&key, id, |entry| entry.checked = true);
            return Some(pinned);
        }
        tracing::warn!(blob = key, "a cached blob is damaged; fetching it again");
        self.remove(&mut lock(&self.state), &key, id);
        None
    }

    /// Removes the least recently used until `quota` is kept, but none that is pinned.
    fn trim(&self, state: &mut State, quota: u64) {
        while state.bytes > quota {
            let unread = state.entries.iter().filter(|(_, entry)| entry.pins == 0);
            let oldest = unread.min_by_key(|(_, entry)| entry.used).map(|(key, entry)| (key.clone(), entry.id));
            let Some((key, id)) = oldest else { return };
            self.remove(state, &key, id);
        }
    }

    /// A file that is open goes on being readable.
    fn remove(&self, state: &mut State, key: &str, id: u64) {
        let Some(len) = state.with(key, id, |entry| entry.len) else { return };
        state.entries.remove(key);
        state.bytes -= len;
        if let Err(error) = fs::remove_file(self.path(key))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(blob = key, %error, "a cached blob cannot be removed; it stays until the next start");
        }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.dir.join(key)
    }
}

impl State {
    /// Adds an entry; a new one is pinned. Its id.
    fn add(&mut self, key: String, len: u64, new: bool) -> u64 {
        self.clock += 1;
        self.bytes += len;
        let id = self.clock;
        let entry = Entry { id, len, used: id, pins: usize::from(new), checked: new };
        if let Some(old) = self.entries.insert(key, entry) {
            self.bytes -= old.len;
        }
        id
    }

    /// Does something with an entry, if it is still the same.
    fn with<T>(&mut self, key: &str, id: u64, work: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.entries.get_mut(key).filter(|entry| entry.id == id).map(work)
    }
}

impl Turn {
    /// Takes a file that was checked against the digest into the cache.
    pub(crate) fn keep(self, file: &Path) -> io::Result<Pinned> {
        let len = file.metadata()?.len();
        let mut state = lock(&self.blobs.state);
        fs::rename(file, self.blobs.path(&self.key))?;
        let id = state.add(self.key.clone(), len, true);
        self.blobs.trim(&mut state, self.blobs.quota);
        Ok(Pinned { blobs: self.blobs.clone(), key: self.key.clone(), id, len })
    }
}

impl Pinned {
    /// Length, bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Opens it for reading.
    pub(crate) fn open(self) -> io::Result<PinnedReader> {
        Ok(PinnedReader { file: File::open(self.blobs.path(&self.key))?, _pinned: self })
    }
}

impl Read for PinnedReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.file.read(buf)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut state = lock(&self.blobs.state);
        state.with(&self.key, self.id, |entry| entry.pins = entry.pins.saturating_sub(1));
        self.blobs.trim(&mut state, self.blobs.quota);
    }
}

fn key(digest: &Digest, scope: Option<&str>) -> io::Result<String> {
    let Some(owner) = scope else { return Ok(digest.hex().to_owned()) };
    let owner = hash(owner.as_bytes()).map_err(io::Error::other)?;
    Ok(format!("{}.{}", digest.hex(), &owner.hex()[..OWNER_LEN]))
}

fn is_key(name: &str) -> bool {
    let hex = |text: &str, len: usize| text.len() == len && text.bytes().all(|b| b.is_ascii_hexdigit());
    match name.split_once('.') {
        Some((digest, owner)) => hex(digest, 64) && hex(owner, OWNER_LEN),
        None => hex(name, 64),
    }
}

fn hash_of(mut file: File) -> io::Result<String> {
    let mut hash = Sha256::new();
    io::copy(&mut file, &mut hash)?;
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
#[path = "blobs_tests.rs"]
mod tests;
