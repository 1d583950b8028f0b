//! Which chunks a disk is made of. Pure.

use super::ChunkId;

const MAGIC: &[u8; 8] = b"WRNDISK1";
const HASH_LEN: usize = 32;
const ENTRY_LEN: usize = 4 + 4 + HASH_LEN;
const HEAD_LEN: usize = 8 + 8 + 4 + 4 + 4;

/// One chunk of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// Which chunk of the disk, from 0. What no part says reads as zeroes.
    pub(crate) index: u32,
    /// Where it lies.
    pub(crate) slot: u32,
    /// What it is.
    pub(crate) id: ChunkId,
}

/// A disk in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Bytes.
    pub(crate) size: u64,
    /// Slot of its header.
    pub(crate) header: u32,
    /// Slots of its tables: of the first level, then those of the second.
    pub(crate) tables: Vec<u32>,
    /// By rising index.
    pub(crate) parts: Vec<Part>,
}

impl Manifest {
    /// As bytes, which end with their own hash.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_LEN + 4 * self.tables.len() + ENTRY_LEN * self.parts.len() + HASH_LEN);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.size.to_le_bytes());
        for word in [self.header, self.tables.len() as u32, self.parts.len() as u32].iter().chain(&self.tables) {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for part in &self.parts {
            out.extend_from_slice(&part.index.to_le_bytes());
            out.extend_from_slice(&part.slot.to_le_bytes());
            out.extend_from_slice(&part.id.0);
        }
        out.extend_from_slice(blake3::hash(&out).as_bytes());
        out
    }

    /// From bytes; `None` if they are not whole.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, hash) = bytes.split_at_checked(bytes.len().checked_sub(HASH_LEN)?)?;
        if blake3::hash(body).as_bytes() != hash {
            return None;
        }
        let (magic, rest) = body.split_at_checked(MAGIC.len())?;
        let (size, rest) = rest.split_at_checked(8)?;
        let mut rest = rest;
        let (header, tables, parts) = (take_word(&mut rest)?, take_word(&mut rest)?, take_word(&mut rest)?);
        let whole = rest.len() as u64 == 4 * u64::from(tables) + ENTRY_LEN as u64 * u64::from(parts);
        if magic != MAGIC || !whole {
            return None;
        }
        let tables = (0..tables).map(|_| take_word(&mut rest)).collect::<Option<_>>()?;
        let parts = rest.chunks_exact(ENTRY_LEN).map(|mut entry| {
            let (index, slot) = (take_word(&mut entry)?, take_word(&mut entry)?);
            Some(Part { index, slot, id: ChunkId(entry.try_into().ok()?) })
        });
        let parts = parts.collect::<Option<_>>()?;
        Some(Self { size: u64::from_le_bytes(size.try_into().ok()?), header, tables, parts })
    }
}

fn take_word(rest: &mut &[u8]) -> Option<u32> {
    let (word, after) = rest.split_at_checked(4)?;
    *rest = after;
    Some(u32::from_le_bytes(word.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn manifests() -> impl Strategy<Value = Manifest> {
        let parts = prop::collection::vec((any::<u32>(), any::<u32>(), any::<[u8; 32]>()), 0..20);
        (any::<u64>(), any::<u32>(), prop::collection::vec(any::<u32>(), 0..4), parts).prop_map(
            |(size, header, tables, parts)| {
                let parts = parts.into_iter().map(|(index, slot, id)| Part { index, slot, id: ChunkId(id) });
                Manifest { size, header, tables, parts: parts.collect() }
            },
        )
    }

    proptest! {
        #[test]
        fn comes_back_whole(manifest in manifests()) {
            prop_assert_eq!(Manifest::decode(&manifest.encode()), Some(manifest));
        }

        #[test]
        fn what_is_cut_or_changed_is_refused(manifest in manifests(), at in any::<prop::sample::Index>(), cut in any::<bool>()) {
            let mut bytes = manifest.encode();
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] ^= 1 }
            prop_assert_eq!(Manifest::decode(&bytes), None);
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(Manifest::decode(&bytes), None);
        }
    }
}
