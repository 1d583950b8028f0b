//! An image in an object store: its record, and where each chunk of its disk lies in which pack. Pure; parsed as hostile.

use crate::chunks::{CHUNK, ChunkId, DISK_SIZE_MAX, Manifest};
use serde::{Deserialize, Serialize};
use warren_proto::node::ImageRecord;

const MAGIC: &[u8; 8] = b"WRNIMG01";
const HASH_LEN: usize = 32;
const PART_LEN: usize = 4 * 4 + HASH_LEN;
/// Largest artifact, bytes: some 10 TB of chunks.
pub(crate) const ARTIFACT_LEN_MAX: u64 = 8 << 30;
/// Largest pack, bytes.
pub(crate) const PACK_LEN_MAX: u32 = 64 << 20;

/// Name of a pack: the BLAKE3 hash of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PackId(pub(crate) [u8; HASH_LEN]);

/// Where a chunk lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Which of the artifact's packs.
    pub(crate) pack: u32,
    /// From which byte on.
    pub(crate) offset: u32,
    /// Bytes: a chunk, or fewer if they are compressed (zstd).
    pub(crate) len: u32,
}

/// One chunk of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RemotePart {
    /// Which chunk of the disk, from 0.
    pub(crate) index: u32,
    /// What it is.
    pub(crate) id: ChunkId,
    /// Where it lies.
    pub(crate) place: Place,
}

/// An image in an object store.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Artifact {
    /// What is known of the image.
    pub(crate) record: ImageRecord,
    /// Length of its disk, bytes.
    pub(crate) size: u64,
    /// What its chunks lie in.
    pub(crate) packs: Vec<PackId>,
    /// By rising index.
    pub(crate) parts: Vec<RemotePart>,
}

#[derive(Serialize, Deserialize)]
struct Head {
    record: ImageRecord,
    size: u64,
    packs: u32,
    parts: u32,
}

impl Artifact {
    /// As bytes, which end with their own hash.
    pub(crate) fn encode(&self) -> serde_json::Result<Vec<u8>> {
        let (packs, parts) = (self.packs.len() as u32, self.parts.len() as u32);
        let head = serde_json::to_vec(&Head { record: self.record.clone(), size: self.size, packs, parts })?;
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&(head.len() as u32).to_le_bytes());
        out.extend_from_slice(&head);
        self.packs.iter().for_each(|pack| out.extend_from_slice(&pack.0));
        for RemotePart { index, id, place } in &self.parts {
            [*index, place.pack, place.offset, place.len].iter().for_each(|w| out.extend_from_slice(&w.to_le_bytes()));
            out.extend_from_slice(&id.0);
        }
        out.extend_from_slice(blake3::hash(&out).as_bytes());
        Ok(out)
    }

    /// From bytes; `None` if they are damaged or say what cannot be.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, hash) = bytes.split_at_checked(bytes.len().checked_sub(HASH_LEN)?)?;
        if blake3::hash(body).as_bytes() != hash {
            return None;
        }
        let rest = body.strip_prefix(MAGIC)?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (head, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        let Head { record, size, packs, parts } = serde_json::from_slice(head).ok()?;
        let (packs, parts) = (packs as usize, parts as usize);
        let (pack_bytes, part_bytes) = rest.split_at_checked(packs.checked_mul(HASH_LEN)?)?;
        if part_bytes.len() != parts.checked_mul(PART_LEN)? {
            return None;
        }
        let packs = pack_bytes.as_chunks::<HASH_LEN>().0.iter().map(|id| PackId(*id)).collect();
        let parts = part_bytes.as_chunks::<PART_LEN>().0.iter().map(part).collect::<Option<_>>()?;
        Some(Self { record, size, packs, parts }).filter(Self::is_possible)
    }

    /// Whether it tells of the disk that `manifest` tells of, chunk by chunk.
    pub(crate) fn is_of(&self, manifest: &Manifest) -> bool {
        let here = manifest.parts.iter().map(|part| (part.index, part.id));
        self.size == manifest.size && self.parts.iter().map(|part| (part.index, part.id)).eq(here)
    }

    fn is_possible(&self) -> bool {
        let chunks = self.size.div_ceil(CHUNK as u64);
        let fits = |part: &RemotePart| {
            let Place { pack, offset, len } = part.place;
            let end = offset.checked_add(len);
            u64::from(part.index) < chunks
                && (pack as usize) < self.packs.len()
                && (1..=CHUNK as u32).contains(&len)
                && end.is_some_and(|end| end <= PACK_LEN_MAX)
        };
        self.size <= DISK_SIZE_MAX
            && self.parts.iter().all(fits)
            && self.parts.windows(2).all(|pair| pair[0].index < pair[1].index)
    }
}

fn part(bytes: &[u8; PART_LEN]) -> Option<RemotePart> {
    let (words, id) = bytes.split_first_chunk::<16>()?;
    let word = |n: usize| Some(u32::from_le_bytes(words.as_chunks::<4>().0.get(n).copied()?));
    let place = Place { pack: word(1)?, offset: word(2)?, len: word(3)? };
    Some(RemotePart { index: word(0)?, id: ChunkId(id.try_into().ok()?), place })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Artifact {
        let record = serde_json::from_value(serde_json::json!({
            "reference": "a:1", "digest": "sha256:1", "size_bytes": 1, "created_at_ms": 2, "env": {"A": "b"}, "user": null,
            "workdir": null, "entrypoint": [], "cmd": ["x"], "architecture": "amd64",
        }));
        let part = |index, offset| RemotePart {
            index,
            id: ChunkId([index as u8; 32]),
            place: Place { pack: 1, offset, len: 9 },
        };
        let packs = vec![PackId([1; 32]), PackId([2; 32])];
        Artifact { record: record.unwrap(), size: 1 << 20, packs, parts: vec![part(0, 7), part(3, 0)] }
    }

    #[test]
    fn comes_back_whole() {
        assert_eq!(Artifact::decode(&sample().encode().unwrap()), Some(sample()));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |change: &dyn Fn(&mut Artifact)| {
            let mut artifact = sample();
            change(&mut artifact);
            assert_eq!(Artifact::decode(&artifact.encode().unwrap()), None);
        };
        refused(&|a| a.parts[1].index = 16);
        refused(&|a| a.parts[1].index = 0);
        refused(&|a| a.parts[0].place.pack = 2);
        refused(&|a| a.parts[0].place.len = 0);
        refused(&|a| a.parts[0].place.len = CHUNK as u32 + 1);
        refused(&|a| a.parts[0].place.offset = u32::MAX);
        refused(&|a| a.size = DISK_SIZE_MAX + 1);
    }

    proptest! {
        #[test]
        fn damage_is_noticed(at in any::<prop::sample::Index>(), cut in any::<bool>()) {
            let mut bytes = sample().encode().unwrap();
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] ^= 0x10 }
            prop_assert_eq!(Artifact::decode(&bytes), None);
        }

        #[test]
        fn any_body_is_survived(mut body in prop::collection::vec(any::<u8>(), 0..300), magic in any::<bool>()) {
            if magic { body.splice(0..0, *MAGIC); }
            let hash = blake3::hash(&body);
            body.extend_from_slice(hash.as_bytes());
            prop_assert_eq!(Artifact::decode(&body), None);
        }
    }
}
