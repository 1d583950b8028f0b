//! An image of this node goes into the object store.

use super::artifact::{Artifact, PackId, Place, RemotePart};
use super::{Remote, RemoteError};
use crate::chunks::{CHUNK, ChunkId, Chunks, Manifest, Part};
use crate::store::blocking;
use std::collections::{HashMap, HashSet};
use std::io;
use warren_model::reference::Digest;
use warren_proto::node::ImageRecord;

/// Bytes of the chunks of a pack, before they are compressed: few requests, and little that comes along unasked.
const PACK_LEN: usize = 4 << 20;
/// How hard chunks are compressed: as fast as one can be read from disk.
const LEVEL: i32 = 3;

/// An image cannot be uploaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    /// The object store failed.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// Its chunks cannot be read here.
    #[error("read the image's chunks")]
    Read(#[from] io::Error),
}

/// Uploads what the object store lacks of an image, then its artifact, which is given back. `there` says where chunks of other images lie
/// already. The image must be leased until this ends.
pub(crate) async fn upload(
    remote: &Remote,
    chunks: &Chunks,
    record: ImageRecord,
    digest: &Digest,
    manifest: &Manifest,
    there: &HashMap<ChunkId, (PackId, Place)>,
) -> Result<Vec<u8>, UploadError> {
    let mut packing = Packing::default();
    for parts in missing(manifest, there).chunks(PACK_LEN / CHUNK) {
        let (chunks, parts) = (chunks.clone(), parts.to_vec());
        let pack = blocking(move || Pack::fill(&chunks, &parts)).await?;
        let id = pack.id();
        remote.put_pack(id, pack.bytes).await?;
        packing.add(id, pack.places);
    }
    let parts = manifest.parts.iter().map(|part| packing.part(part, there)).collect::<Option<Vec<_>>>();
    let parts = parts.ok_or_else(|| io::Error::other("a chunk was not packed"))?;
    let artifact = Artifact { record, size: manifest.size, packs: packing.packs, parts };
    let bytes = artifact.encode().map_err(io::Error::from)?;
    remote.put_artifact(digest, bytes.clone()).await?;
    Ok(bytes)
}

/// Each chunk of a disk once, but for those that are there.
fn missing(manifest: &Manifest, there: &HashMap<ChunkId, (PackId, Place)>) -> Vec<Part> {
    let mut seen = HashSet::new();
    manifest.parts.iter().filter(|part| !there.contains_key(&part.id) && seen.insert(part.id)).copied().collect()
}

/// Chunks one after the other.
struct Pack {
    bytes: Vec<u8>,
    places: Vec<(ChunkId, u32, u32)>,
}

impl Pack {
    fn fill(chunks: &Chunks, parts: &[Part]) -> io::Result<Self> {
        let mut pack = Self { bytes: Vec::with_capacity(PACK_LEN), places: Vec::new() };
        for part in parts {
            let plain = chunks.read(part.slot)?;
            if ChunkId::of(&plain) != part.id {
                return Err(io::Error::other("a chunk on this node's disk is damaged"));
            }
            let compressed = zstd::bulk::compress(&plain[..], LEVEL)?;
            let stored = if compressed.len() < plain.len() { &compressed[..] } else { &plain[..] };
            pack.places.push((part.id, pack.bytes.len() as u32, stored.len() as u32));
            pack.bytes.extend_from_slice(stored);
        }
        Ok(pack)
    }

    fn id(&self) -> PackId {
        PackId(*blake3::hash(&self.bytes).as_bytes())
    }
}

/// The packs of an artifact and what lies where in them.
#[derive(Default)]
struct Packing {
    packs: Vec<PackId>,
    numbers: HashMap<PackId, u32>,
    places: HashMap<ChunkId, Place>,
}

impl Packing {
    fn number(&mut self, id: PackId) -> u32 {
        let packs = &mut self.packs;
        *self.numbers.entry(id).or_insert_with(|| {
            packs.push(id);
            packs.len() as u32 - 1
        })
    }

    fn add(&mut self, id: PackId, places: Vec<(ChunkId, u32, u32)>) {
        let pack = self.number(id);
        self.places.extend(places.into_iter().map(|(id, offset, len)| (id, Place { pack, offset, len })));
    }

    fn part(&mut self, part: &Part, there: &HashMap<ChunkId, (PackId, Place)>) -> Option<RemotePart> {
        let place = match there.get(&part.id) {
            Some((id, place)) => Place { pack: self.number(*id), ..*place },
            None => *self.places.get(&part.id)?,
        };
        Some(RemotePart { index: part.index, id: part.id, place })
    }
}
